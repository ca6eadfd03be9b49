// Objects in the order they came. They are linked by their member `T* next`, so nothing is
// allocated and each is in one list at most.
//
// Threads and ownership: the user's.
#pragma once

namespace ringside {

template <typename T>
class Fifo {
 public:
  bool empty() const { return first_ == nullptr; }
  T* front() const { return first_; }
  void Push(T& object) {
    object.next = nullptr;
    *end_ = &object;
    end_ = &object.next;
  }
  T* Pop() {
    T* object = first_;
    if (object == nullptr) return nullptr;
    first_ = object->next;
    if (first_ == nullptr) end_ = &first_;
    return object;
  }
  // All of them, linked by `next`.
  T* TakeAll() {
    T* all = first_;
    first_ = nullptr;
    end_ = &first_;
    return all;
  }

  // Takes all, and calls use(object) for each. What `use` pushes stays.
  template <typename Use>
  void TakeEach(Use use) {
    T* object = TakeAll();
    while (object != nullptr) {
      T* next = object->next;
      use(*object);
      object = next;
    }
  }

 private:
  T* first_ = nullptr;
  T** end_ = &first_;
};

}  // namespace ringside
