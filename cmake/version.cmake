# build/version/chairlift_version_config.h: the version of CMakeLists.txt, and the commit, which is asked for at every
# build and written only where it has changed. Run by the build as a script, too.
if(CMAKE_SCRIPT_MODE_FILE)
  execute_process(COMMAND git -C ${SOURCE} describe --always --dirty --match "" --abbrev=12
                  OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
  if(failed)
    set(commit "unknown")  # an archive of the sources
  endif()
  set(text "#define CHAIRLIFT_VERSION \"${VERSION}\"\n#define CHAIRLIFT_COMMIT \"${commit}\"\n")
  set(before "")
  if(EXISTS ${OUTPUT})
    file(READ ${OUTPUT} before)
  endif()
  if(NOT text STREQUAL before)
    file(WRITE ${OUTPUT} "${text}")
  endif()
  return()
endif()

set(chairlift_version_header ${CMAKE_BINARY_DIR}/version/chairlift_version_config.h)
add_custom_target(chairlift_version_header BYPRODUCTS ${chairlift_version_header}
  COMMAND ${CMAKE_COMMAND} -DSOURCE=${PROJECT_SOURCE_DIR} -DVERSION=${PROJECT_VERSION} -DOUTPUT=${chairlift_version_header}
          -P ${CMAKE_CURRENT_LIST_FILE})
