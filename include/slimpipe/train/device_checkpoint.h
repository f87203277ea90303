#pragma once
// A device's part in saving and loading a checkpoint.

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "slimpipe/runtime/engine.h"
#include "slimpipe/train/checkpoint.h"

namespace slimpipe::train {

/// Table indices that a device with these chunks saves: what it holds, except copies that another device
/// saves (the last stage's copy of a tied embedding).
[[nodiscard]] std::vector<std::size_t> saved_entries(const model::ParameterTable& table,
                                                     const std::vector<runtime::ChunkPlacement>& chunks);
[[nodiscard]] std::string device_file_name(int device);
/// The manifest of a checkpoint of this layout, state, bytes and hashes still to be filled in. `devices`: the
/// pipeline group, one file each.
[[nodiscard]] Manifest layout_manifest(const schedule::Schedule& schedule, const model::ParameterTable& table,
                                       const std::vector<int>& devices, const std::vector<int>& stage_layers);

/// Writes the device's file into the partial folder, streaming tensor by tensor. Throws Error where a value
/// is not finite.
FileRecord save_device(runtime::DeviceContext& context, const model::ParameterTable& table,
                       const std::filesystem::path& partial);
/// Loads master weights and moments of everything the device holds.
void load_device(runtime::DeviceContext& context, const model::ParameterTable& table,
                 CheckpointReader& reader);

}  // namespace slimpipe::train
