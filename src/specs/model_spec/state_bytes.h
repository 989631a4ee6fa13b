// Bytes of weights, gradients and optimizer state: what training keeps of each parameter, counted
// once for prices, the trainer's memory and the planner.
#pragma once

namespace penstock {

inline constexpr double kFp32StateBytes = 4;  // of a master, a moment or an average

// The bytes of one parameter.
struct StateFormat {
  double working = kFp32StateBytes;   // the weight that compute reads
  double master = 0;                  // an fp32 copy that is updated instead, if working is smaller
  double gradient = kFp32StateBytes;  // the sum over microbatches
  double optimizer = 2 * kFp32StateBytes;  // AdamW's moments

  // Returns the bytes of a weight that steps update: the master, if there is one.
  double updated() const { return master > 0 ? master : working; }
};

// Returns AdamW's format for weights of `working` bytes that compute reads, with masters if these
// have fewer bytes than fp32, and gradients that are summed in fp32.
StateFormat AdamWFormat(double working);

// What replicas of a stage divide among themselves (ZeRO, Rajbhandari et al. 2020): from 1 on
// masters and optimizer state, from 2 on gradients, from 3 on weights.
struct Sharding {
  int zero = 0;
  double replicas = 1;

  double Share(int from_zero) const { return zero >= from_zero ? 1 / replicas : 1; }
};

// How many elements a rank holds: equal to its number of parameters where nothing is divided.
struct StateElements {
  double working = 0;
  double masters = 0;
  double gradients = 0;
  double optimizer = 0;
};

// Returns the elements that each replica holds, without the padding of shards.
StateElements ElementsOf(double parameters, const Sharding& sharding);

struct StateBytes {
  double weights = 0;  // with masters
  double version = 0;  // of each older version that is kept: without masters
  double gradients = 0;
  double optimizer = 0;

  double total() const { return weights + gradients + optimizer; }
  StateBytes operator+(const StateBytes& more) const {
    return {weights + more.weights, version + more.version, gradients + more.gradients,
            optimizer + more.optimizer};
  }
};

StateBytes StatesOf(const StateElements& elements, const StateFormat& format);

// Returns the memory that an optimizer's step reads and writes.
double StepBytes(const StateElements& elements, const StateFormat& format);

}  // namespace penstock
