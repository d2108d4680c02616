// Random changes to a protobuf message, field by field.
#include "fuzz/proto_mutator.h"

#include <limits>
#include <random>
#include <string>
#include <vector>

namespace chairlift::fuzz {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

constexpr int64_t kNumbers[] = {0,
                                1,
                                -1,
                                2,
                                3,
                                4,
                                7,
                                8,
                                10,
                                11,
                                13,
                                16,
                                21,
                                64,
                                -2,
                                -3,
                                1 << 16,
                                1 << 31u,
                                -(1 << 30),
                                1LL << 40,
                                1LL << 62,
                                std::numeric_limits<int64_t>::max(),
                                std::numeric_limits<int64_t>::min()};

struct Place {
  Message* message;
  const FieldDescriptor* field;
};

class Mutator {
 public:
  explicit Mutator(uint32_t seed) : random_(seed) {}

  void Run(Message& message) {
    const int changes = 1 + Below(4);
    for (int i = 0; i < changes; ++i) {
      places_.clear();
      strings_ = {""};
      Collect(message);
      if (!places_.empty()) Change(places_[Below(places_.size())]);
    }
  }

 private:
  int Below(size_t n) { return static_cast<int>(random_() % n); }

  // Every field that is set, and all strings.
  void Collect(Message& message) {
    const Reflection& reflection = *message.GetReflection();
    std::vector<const FieldDescriptor*> fields;
    reflection.ListFields(message, &fields);
    for (const FieldDescriptor* field : fields) {
      places_.push_back({&message, field});
      const int count = field->is_repeated() ? reflection.FieldSize(message, field) : 1;
      for (int i = 0; i < count; ++i) {
        if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
          Collect(field->is_repeated() ? *reflection.MutableRepeatedMessage(&message, field, i)
                                       : *reflection.MutableMessage(&message, field));
        } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING && strings_.size() < 256) {
          strings_.push_back(field->is_repeated() ? reflection.GetRepeatedString(message, field, i)
                                                  : reflection.GetString(message, field));
        }
      }
    }
  }

  void Change(const Place& place) {
    if (!place.field->is_repeated()) {
      if (Below(8) == 0) {
        place.message->GetReflection()->ClearField(place.message, place.field);
      } else {
        Set(place, -1);
      }
      return;
    }
    const Reflection& reflection = *place.message->GetReflection();
    const int count = reflection.FieldSize(*place.message, place.field);
    switch (Below(4)) {
      case 0:
        reflection.SwapElements(place.message, place.field, Below(count), Below(count));
        break;
      case 1:
        reflection.SwapElements(place.message, place.field, Below(count), count - 1);
        reflection.RemoveLast(place.message, place.field);
        break;
      case 2:
        Append(place, Below(count));
        break;
      default:
        Set(place, Below(count));
    }
  }

  // Repeats element `source`; a number or string is a new one.
  void Append(const Place& place, int source) {
    Message* m = place.message;
    const FieldDescriptor* f = place.field;
    const Reflection& r = *m->GetReflection();
    switch (f->cpp_type()) {
      case FieldDescriptor::CPPTYPE_MESSAGE: {
        Message* added = r.AddMessage(m, f);
        added->CopyFrom(r.GetRepeatedMessage(*m, f, source));
        break;
      }
      case FieldDescriptor::CPPTYPE_STRING:
        r.AddString(m, f, strings_[Below(strings_.size())]);
        break;
      case FieldDescriptor::CPPTYPE_INT64:
        r.AddInt64(m, f, Number());
        break;
      case FieldDescriptor::CPPTYPE_INT32:
        r.AddInt32(m, f, static_cast<int32_t>(Number()));
        break;
      case FieldDescriptor::CPPTYPE_FLOAT:
        r.AddFloat(m, f, static_cast<float>(Number()));
        break;
      default:
        break;
    }
  }

  int64_t Number() { return kNumbers[Below(std::size(kNumbers))]; }

  // Replaces the field's value, or its element `i`.
  void Set(const Place& place, int i) {
    Message* m = place.message;
    const FieldDescriptor* f = place.field;
    const Reflection& r = *m->GetReflection();
    const bool repeated = f->is_repeated();
    switch (f->cpp_type()) {
      case FieldDescriptor::CPPTYPE_STRING: {
        const std::string text = strings_[Below(strings_.size())];
        repeated ? r.SetRepeatedString(m, f, i, text) : r.SetString(m, f, text);
        break;
      }
      case FieldDescriptor::CPPTYPE_INT64:
        repeated ? r.SetRepeatedInt64(m, f, i, Number()) : r.SetInt64(m, f, Number());
        break;
      case FieldDescriptor::CPPTYPE_INT32: {
        const auto number = static_cast<int32_t>(Number());
        repeated ? r.SetRepeatedInt32(m, f, i, number) : r.SetInt32(m, f, number);
        break;
      }
      case FieldDescriptor::CPPTYPE_FLOAT: {
        const auto number = static_cast<float>(Number());
        repeated ? r.SetRepeatedFloat(m, f, i, number) : r.SetFloat(m, f, number);
        break;
      }
      case FieldDescriptor::CPPTYPE_ENUM:
        if (!repeated) r.SetEnumValue(m, f, Below(16));
        break;
      default:
        break;
    }
  }

  std::minstd_rand random_;
  std::vector<Place> places_;
  std::vector<std::string> strings_;
};

}  // namespace

void MutateMessage(Message& message, uint32_t seed) { Mutator(seed).Run(message); }

}  // namespace chairlift::fuzz
