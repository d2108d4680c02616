# Sourced by the scripts of this folder. With --help or -h, a script prints the comment at its beginning and ends.
case ${1-} in
  -h | --help)
    sed -n '2,${/^#/!q;s/^# \{0,1\}//p}' "$0"
    exit
    ;;
esac
