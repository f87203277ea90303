#include "slimpipe/train/device_checkpoint.h"

#include <algorithm>

#include "slimpipe/core/check.h"

namespace slimpipe::train {
namespace {

constexpr std::int64_t kPieceElements = std::int64_t{1} << 22;  // host staging of 16 MiB

/// Elements [begin, begin + count) of a moment.
Tensor part_of_moment(const model::StoredParameter& parameter, Role role, std::int64_t begin,
                      std::int64_t count) {
  const Tensor& moment = role == Role::kMoment1 ? parameter.moment1 : parameter.moment2;
  return moment.reshape({moment.size()}).rows(begin, begin + count);
}

void read_role(runtime::DeviceContext& context, const model::StoredParameter& parameter, Role role,
               std::int64_t begin, std::span<float> values) {
  if (role == Role::kMaster) {
    context.store->read_master(parameter, begin, values);
  } else {
    context.device->download(part_of_moment(parameter, role, begin, std::ssize(values)), values.data());
  }
}

void write_role(runtime::DeviceContext& context, const model::StoredParameter& parameter, Role role,
                std::int64_t begin, std::span<const float> values) {
  if (role == Role::kMaster) {
    context.store->write_master(parameter, begin, values);
  } else {
    context.device->upload(values.data(), part_of_moment(parameter, role, begin, std::ssize(values)));
  }
}

/// Calls body(first element, staging of that part's size) for bounded parts of `elements`.
template <typename Body>
void for_each_part(std::int64_t elements, std::vector<float>& staging, Body body) {
  for (std::int64_t begin = 0; begin < elements; begin += kPieceElements) {
    staging.resize(static_cast<std::size_t>(std::min(elements - begin, kPieceElements)));
    body(begin, std::span<float>(staging));
  }
}

/// A state that no run can go on from must not take the place of one that is good. Gradients are finite when
/// they are applied, so this is what a far too large update leaves.
void check_finite(std::span<const float> values, const std::string& tensor, std::int64_t begin) {
  if (const auto place = first_not_finite(values)) {
    throw_error(
        "element {} of tensor {} is {} after the last update, so nothing is saved: lower training.lr, or set "
        "training.clip, and go on from the checkpoint before it with --resume",
        begin + *place, tensor, values[*place]);
  }
}

}  // namespace

std::vector<std::size_t> saved_entries(const model::ParameterTable& table,
                                       const std::vector<runtime::ChunkPlacement>& chunks) {
  const bool first = std::ranges::any_of(chunks, &runtime::ChunkPlacement::first);
  std::vector<std::size_t> entries = runtime::parameters_of(table, chunks);
  std::erase_if(entries,
                [&](std::size_t i) { return table.entries()[i].part == model::Part::kEmbedding && !first; });
  return entries;
}

Manifest layout_manifest(const schedule::Schedule& schedule, const model::ParameterTable& table,
                         const std::vector<int>& devices, const std::vector<int>& stage_layers) {
  Manifest manifest;
  for (std::size_t rank = 0; rank < devices.size(); ++rank) {
    const std::string file = device_file_name(devices[rank]);
    manifest.files.push_back({file, 0, 0});
    const auto chunks = runtime::place_chunks(schedule, static_cast<int>(rank), stage_layers);
    for (const std::size_t index : saved_entries(table, chunks)) {
      const model::ParameterSpec& spec = table.entries()[index];
      for (const Role role : kRoles) {
        manifest.tensors[stored_name(spec.name, role)] = {spec.shape, {{file, 0, spec.size()}}};
      }
    }
  }
  return manifest;
}

std::string device_file_name(int device) {
  return fmt::format("device-{:05}.safetensors", device);
}

FileRecord save_device(runtime::DeviceContext& context, const model::ParameterTable& table,
                       const std::filesystem::path& partial) {
  const std::vector<std::size_t> saved = saved_entries(table, context.chunks);
  std::vector<io::TensorEntry> entries;
  for (const std::size_t index : saved) {
    const model::ParameterSpec& spec = table.entries()[index];
    for (const Role role : kRoles) {
      entries.push_back({.name = stored_name(spec.name, role),
                         .dtype = DType::kF32,
                         .shape = spec.shape,
                         .offset = 0,
                         .bytes = 0});
    }
  }
  const std::string name = device_file_name(context.index);
  io::SafetensorsWriter writer(partial / name, std::move(entries), {{"format", "slimpipe-checkpoint"}});
  std::vector<float> staging;
  for (const std::size_t index : saved) {
    for (const Role role : kRoles) {
      const model::ParameterSpec& spec = table.entries()[index];
      for_each_part(spec.size(), staging, [&](std::int64_t begin, std::span<float> values) {
        read_role(context, *context.store->find(index), role, begin, values);
        check_finite(values, stored_name(spec.name, role), begin);
        writer.append(std::as_bytes(values));
      });
    }
  }
  const io::SafetensorsWriter::Result result = writer.finish();
  return {name, result.bytes, result.hash};
}

void load_device(runtime::DeviceContext& context, const model::ParameterTable& table,
                 CheckpointReader& reader) {
  std::vector<float> staging;
  for (const model::StoredParameter& parameter : context.store->parameters()) {
    const model::ParameterSpec& spec = table.entries()[parameter.index];
    for (const Role role : kRoles) {
      for_each_part(spec.size(), staging, [&](std::int64_t begin, std::span<float> values) {
        reader.read(stored_name(spec.name, role), spec.shape, begin, values);
        write_role(context, parameter, role, begin, values);
      });
    }
  }
}

}  // namespace slimpipe::train
