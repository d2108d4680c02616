// write_doubling_model FILE: the model that the package test asks.
#include <iostream>

#include "engine/test_models.h"

int main(int argc, char** argv) {
  if (argc != 2) return std::cerr << "usage: write_doubling_model FILE\n", 2;
  chairlift::testing::WriteFile(argv[1], chairlift::testing::DoublingModel().Bytes());
}
