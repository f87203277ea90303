#include "comm/mpi_requests.h"

#include <array>
#include <exception>
#include <utility>

#include "slimpipe/core/check.h"

#include "comm/mpi_check.h"

namespace slimpipe::comm {
namespace {

/// `bytes` as the count and type of one MPI message, of any length.
class MessageType {
 public:
  MessageType(std::int64_t bytes, int max_plain_bytes) {
    if (bytes <= max_plain_bytes) {
      count_ = static_cast<int>(bytes);
      return;
    }
    SLIMPIPE_CHECK(bytes / max_plain_bytes <= INT_MAX, "a message of {} bytes", bytes);
    MPI_Datatype block = MPI_DATATYPE_NULL;
    check_mpi(MPI_Type_contiguous(max_plain_bytes, MPI_BYTE, &block), "make a type");
    const auto blocks = static_cast<int>(bytes / max_plain_bytes);
    const std::array lengths = {blocks, static_cast<int>(bytes % max_plain_bytes)};
    const std::array<MPI_Aint, 2> offsets = {0, static_cast<MPI_Aint>(blocks) * max_plain_bytes};
    const std::array<MPI_Datatype, 2> types = {block, MPI_BYTE};
    check_mpi(MPI_Type_create_struct(2, lengths.data(), offsets.data(), types.data(), &type_), "make a type");
    check_mpi(MPI_Type_free(&block), "free a type");
    check_mpi(MPI_Type_commit(&type_), "commit a type");
    count_ = 1;
  }
  // A request under way keeps its type alive.
  ~MessageType() {
    if (type_ != MPI_BYTE) MPI_Type_free(&type_);
  }
  MessageType(const MessageType&) = delete;
  MessageType& operator=(const MessageType&) = delete;

  [[nodiscard]] int count() const { return count_; }
  [[nodiscard]] MPI_Datatype get() const { return type_; }

 private:
  int count_ = 0;
  MPI_Datatype type_ = MPI_BYTE;
};

/// What went wrong with a finished message, or nothing.
std::string error_of(const MpiMessage& message, const MPI_Status& status, int code) {
  if (message.direction == Direction::kReceive && (code == MPI_SUCCESS || code == MPI_ERR_TRUNCATE)) {
    MPI_Count received = 0;
    check_mpi(MPI_Get_elements_x(&status, MPI_BYTE, &received), "tell the size of a message");
    if (received != message.bytes) {
      return size_disagreement(message.channel, message.number, received, message.bytes);
    }
  }
  if (code == MPI_SUCCESS) return {};
  try {
    check_mpi(code, "move a message");
  } catch (const Error& error) {
    return fmt::format("message {} of the {} ({} bytes): {}", message.number, describe(message.channel),
                       message.bytes, error.what());
  }
  return {};
}

}  // namespace

MpiRequests::MpiRequests(const Topology& topology, int max_plain_bytes, PatienceLimits patience)
    : topology_(topology),
      max_plain_bytes_(max_plain_bytes),
      watch_(patience, fmt::format("rank {}", topology.this_process())) {
  int rank = 0;
  int size = 0;
  check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &rank), "tell this process's rank");
  check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &size), "tell the number of processes");
  SLIMPIPE_CHECK(rank == topology.this_process() && size == topology.processes(),
                 "MPI has rank {} of {}, the topology process {} of {}", rank, size, topology.this_process(),
                 topology.processes());
  check_tags();
  const Waiting waiting(watch_,
                        "all processes of the run to make the communicators of the devices' messages");
  for (MPI_Comm* communicator : {&messages_communicator_, &control_communicator_}) {
    check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, communicator), "duplicate the communicator");
    check_mpi(MPI_Comm_set_errhandler(*communicator, MPI_ERRORS_RETURN), "set its error handler");
  }
}

MpiRequests::~MpiRequests() {
  if (!idle()) abandon();
  // Freeing is collective; after a failure the others may not come.
  if (abandoned_ || std::uncaught_exceptions() > 0) return;
  const Waiting waiting(watch_,
                        "all processes of the run to free the communicators of the devices' messages");
  MPI_Comm_free(&control_communicator_);
  MPI_Comm_free(&messages_communicator_);
}

void MpiRequests::check_tags() const {
  const int* upper_bound = nullptr;
  int found = 0;
  check_mpi(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, static_cast<void*>(&upper_bound), &found),
            "tell its largest tag");
  SLIMPIPE_CHECK(found != 0, "MPI does not tell MPI_TAG_UB");
  const std::int64_t devices = topology_.devices();
  const std::int64_t tags = devices * devices * kNumPurposes;
  if (tags - 1 > *upper_bound) {
    throw_input_error(
        "{} devices need message tags up to {}, but this MPI allows {}: use fewer devices or another MPI "
        "transport layer",
        devices, tags - 1, *upper_bound);
  }
}

int MpiRequests::tag_of(const Channel& channel) const {
  return (channel.source * topology_.devices() + channel.destination) * kNumPurposes +
         static_cast<int>(channel.purpose);
}

MPI_Comm MpiRequests::communicator_of(const Channel& channel) const {
  return channel.purpose == Purpose::kControl ? control_communicator_ : messages_communicator_;
}

void MpiRequests::start(MpiMessagePointer message) {
  const MessageType type(message->bytes, max_plain_bytes_);
  const int tag = tag_of(message->channel);
  MPI_Request request = MPI_REQUEST_NULL;
  if (message->direction == Direction::kSend) {
    check_mpi(MPI_Isend(message->source, type.count(), type.get(),
                        topology_.process_of(message->channel.destination), tag,
                        communicator_of(message->channel), &request),
              "post a send");
  } else {
    check_mpi(MPI_Irecv(message->destination, type.count(), type.get(),
                        topology_.process_of(message->channel.source), tag, communicator_of(message->channel),
                        &request),
              "post a receive");
  }
  requests_.push_back(request);
  messages_.push_back(std::move(message));
}

std::vector<MpiMessagePointer> MpiRequests::poll() {
  std::vector<MpiMessagePointer> ended;
  if (idle()) return ended;
  finished_.resize(requests_.size());
  statuses_.resize(requests_.size());
  int count = 0;
  const int result = MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count,
                                  finished_.data(), statuses_.data());
  if (result != MPI_ERR_IN_STATUS) check_mpi(result, "test for finished messages");
  if (count == 0) return ended;
  const Moment now = std::chrono::steady_clock::now();
  for (int i = 0; i < count; ++i) {
    const auto index = static_cast<std::size_t>(finished_[static_cast<std::size_t>(i)]);
    const MPI_Status& status = statuses_[static_cast<std::size_t>(i)];
    MpiMessagePointer message = std::move(messages_[index]);
    requests_[index] = MPI_REQUEST_NULL;
    // MPI sets the code of a status only where it reports MPI_ERR_IN_STATUS.
    message->error = error_of(*message, status, result == MPI_ERR_IN_STATUS ? status.MPI_ERROR : MPI_SUCCESS);
    message->done_at = now;
    ended.push_back(std::move(message));
  }
  std::erase_if(requests_, [](MPI_Request request) { return request == MPI_REQUEST_NULL; });
  std::erase_if(messages_, [](const MpiMessagePointer& message) { return message == nullptr; });
  return ended;
}

void MpiRequests::abandon() noexcept {
  abandoned_ = true;
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    if (messages_[i]->direction == Direction::kReceive) MPI_Cancel(&requests_[i]);
    MPI_Request_free(&requests_[i]);
  }
  requests_.clear();
  messages_.clear();
}

}  // namespace slimpipe::comm
