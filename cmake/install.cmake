# cmake --install, and what find_package(chairlift) reads: the target chairlift::chairlift, with the headers of
# include/chairlift and everything from the engine down as static libraries. Component "development".
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

add_library(chairlift_api INTERFACE)
target_link_libraries(chairlift_api INTERFACE chairlift_engine)
target_include_directories(chairlift_api INTERFACE
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
set_target_properties(chairlift_api PROPERTIES EXPORT_NAME chairlift)
add_library(chairlift::chairlift ALIAS chairlift_api)

set(chairlift_layers ${CHAIRLIFT_LAYERS})
list(REMOVE_ITEM chairlift_layers server cli python)
foreach(layer ${chairlift_layers})
  set_target_properties(chairlift_${layer} PROPERTIES EXPORT_NAME ${layer})
endforeach()
list(TRANSFORM chairlift_layers PREPEND chairlift_)

set(chairlift_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/chairlift)
install(TARGETS chairlift_api chairlift_dnnl chairlift_hwy chairlift_onnx_proto chairlift_re2 ${chairlift_layers}
        EXPORT chairlift
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
install(DIRECTORY include/chairlift DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development)
install(EXPORT chairlift NAMESPACE chairlift:: FILE chairliftTargets.cmake
        DESTINATION ${chairlift_package_dir} COMPONENT development)
configure_package_config_file(
  cmake/chairliftConfig.cmake.in ${PROJECT_BINARY_DIR}/chairliftConfig.cmake
  INSTALL_DESTINATION ${chairlift_package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/chairliftConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/chairliftConfig.cmake
              ${PROJECT_BINARY_DIR}/chairliftConfigVersion.cmake
        DESTINATION ${chairlift_package_dir} COMPONENT development)
