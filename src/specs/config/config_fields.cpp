#include "config/config_fields.h"

#include <iterator>

namespace penstock {
namespace {

using enum Changes;

// A smaller epsilon is 0 in fp32, and an update with a zero gradient would then be 0 / 0.
constexpr double kLeastEpsilon = 1e-37;
// 30 years, which still fits in an integer of milliseconds.
constexpr double kLongestWatchdog = 1e9;
constexpr double kAny = std::numeric_limits<double>::lowest();

std::vector<Field> RunFields(TrainConfig& c) {
  return {
      {"name", &c.name, kFiles, "Name of the run: its files are in FOLDER/NAME", kFromZero,
       "run_name"},
      {"folder", &c.folder, kFiles, "Folder of the runs", kFromZero, "output_dir"},
      {"seed", &c.seed, kRun, "Seed of the parameters, the batches and the sampled passage"},
      {"batch", &c.batch, kPrograms, "Samples per microbatch", kFromOne,
       "batch_size micro_batch_size microbatch_size local_batch_size per_device_train_batch_size"},
      {"steps", &c.steps, kRun, "Optimizer steps", kFromOne,
       "max_steps num_steps training_steps train_iters max_iters"},
      {"seconds", &c.seconds, kRun, "Time for the steps, in seconds; 0: no limit"},
      {"sample", &c.sample, kRun, "Bytes of the passage that is generated at the end"},
      {"exact", &c.exact, kPrograms,
       "Accumulate weight gradients as autograd does, to the last bit"},
      {"fuse", &c.fuse, kPrograms, "Run chains of pointwise operations as compiled kernels"},
      {"precision", &c.precision, kPrograms,
       "Dtype of the computation: f32 or bf16; weights are f32", OneOf("f32 bf16"),
       "dtype torch_dtype"},
      {"device", &c.device, kPrograms,
       "Device that trains: cpu, or PyTorch's name of another one: cuda, cuda:1, xpu"},
      {"device_graphs", &c.device_graphs, kPrograms,
       "Start forwards and backwards as recorded graphs of the device (CUDA graphs)"},
      {"device_parts", &c.device_parts, kPrograms,
       "Give each rank its own part of the device's processors (CUDA green contexts)"},
      {"transport", &c.transport, kFiles,
       "Data of the device between processes: host (copied), c10d (NCCL), or mpi (MPI for CUDA)",
       OneOf("host c10d mpi")},
      {"max_memory", &c.max_memory, kFiles,
       "Memory that the run may need: auto (what is available), a size (16GiB), or none (no "
       "check)"},
      {"watchdog",
       &c.watchdog,
       kFiles,
       "Seconds without progress after which the run fails",
       {.least = 0.1, .most = kLongestWatchdog}},
      {"weights", &c.weights, kRun,
       "Folder with weights in Hugging Face's format to start from; empty: random weights"},
      {"compiled", &c.compiled, kRun, "Folder of 'penstock compile'; empty: stages are captured"},
      {"resume", &c.resume, kFiles,
       "Checkpoint to continue from: its file, a folder of them, or auto (the run's newest)",
       kFromZero, "load resume_from_checkpoint"},
      {"trace_steps", &c.trace_steps, kFiles, "Steps whose timelines are written as traces: 10,20"},
  };
}

std::vector<Field> DataFields(DataConfig& c) {
  return {
      {"data.path", &c.path, kRun, "File or folder of text, or a folder of 'penstock tokenize'",
       kFromZero, "dataset dataset_path train_file"},
      {"data.tokenizer", &c.tokenizer, kRun,
       "Tokenizer of text: bytes, a file or a folder; empty: the tokenizer of the model's folder "
       "or the data",
       kFromZero, "tokenizer tokenizer_path tokenizer_name tokenizer_model"},
      {"data.blend", &c.blend, kRun,
       "Several tokenized folders instead of data.path, after their weights: '0.7 web, 0.3 code'",
       kFromZero, "data_path blend data_blend"},
      {"data.document_mask", &c.document_mask, kPrograms,
       "Tokens attend only to their own document, and positions start at 0 in each", kFromZero,
       "reset_attention_mask reset_position_ids attn_mask_type"},
      {"data.lengths", &c.lengths, kRun,
       "Tokens of each microbatch in turn, whose samples are padded documents; empty: windows",
       kFromOne, "length_buckets bucket_boundaries seq_lengths"},
      {"data.held_out",
       &c.held_out,
       kRun,
       "Share of the text that is never trained on",
       {.least = 0.001, .most = 0.5}},
  };
}

std::vector<Field> CommonModelFields(ModelConfig& m) {
  return {
      {"model.name", &m.name, kModel, "Model, by name"},
      {"model.vocabulary",
       &m.vocabulary,
       kModel,
       "Number of tokens; the first 256 are bytes",
       {.least = 256, .most = kMostModelSize},
       "vocab_size"},
      {"model.dim", &m.dim, kModel, "Width of the hidden states", kModelSize,
       "d_model n_embd hidden_size"},
      {"model.layers", &m.layers, kModel, "Layers", kModelSize,
       "n_layers n_layer num_layers num_hidden_layers"},
      {"model.sequence", &m.sequence, kModel, "Tokens per sample", kModelSize,
       "seq_len seq_length max_seq_len sequence_length context_length block_size n_positions "
       "max_position_embeddings"},
  };
}

std::vector<Field> PipelineFields(PipelineConfig& c) {
  return {
      {"pipeline.stages", &c.stages, kPrograms,
       "Stages, if ranks and chunks are chosen automatically", kFromOne},
      {"pipeline.ranks", &c.ranks, kRun, "Pipeline ranks (auto: as many as cores, 2 to 4)",
       kAutomatic, "pp world_size pipeline_parallel_degree pipeline_model_parallel_size"},
      {"pipeline.chunks", &c.chunks, kRun, "Stages per rank (auto: stages divided by ranks)",
       kAutomatic, "num_virtual_stages_per_pipeline_rank"},
      {"pipeline.schedule", &c.schedule, kRun,
       "Schedule, by name (auto: 1f1b, or interleaved with several stages per rank)", kFromZero,
       "pipeline_parallel_schedule"},
      {"pipeline.csv", &c.csv, kRun, "File of a schedule, in place of a name", kFromZero,
       "pipeline_parallel_schedule_csv"},
      {"pipeline.microbatches", &c.microbatches, kPrograms,
       "Microbatches per step, over all data-parallel replicas", kFromOne,
       "global_batch_size num_microbatches gradient_accumulation_steps"},
      {"pipeline.slices", &c.slices, kRun, "Slices of a microbatch along the sequence", kFromOne,
       "num_splits"},
      {"pipeline.slice_lengths", &c.slice_lengths, kRun,
       "Tokens of each slice; empty: equal slices", kFromOne},
      {"pipeline.split", &c.split, kRun,
       "Split backward into I and W, if the schedule has both forms"},
      {"pipeline.group", &c.group, kRun, "Microbatches in flight at a time (interleaved)",
       kAutomatic},
      {"pipeline.waves", &c.waves, kRun, "Waves (hanayo)", kAutomatic},
      {"pipeline.memory_limit", &c.memory_limit, kRun,
       "Memory limit of the schedule, in activations of one rank and microbatch (v-auto)",
       kAutomatic},
      {"pipeline.cost", &c.cost, kRun,
       "Times that the schedule assumes: F,I,W of one rank and microbatch; empty: 1,1,1"},
      {"pipeline.comm", &c.comm, kRun,
       "Latency of a transfer that the schedule assumes, in the unit of cost"},
      {"pipeline.overlap", &c.overlap, kRun,
       "Time of an overlapped F and B: max, sum or a factor of F + B; empty: max"},
      {"pipeline.stage_layers",
       &c.stage_layers,
       kPrograms,
       "Layers of each stage; empty: as evenly as possible",
       {.least = kAny}},
  };
}

std::vector<Field> ParallelFields(ParallelConfig& c) {
  return {
      {"parallel.data", &c.data, kPrograms,
       "Replicas of the pipeline, at least parallel.expert; they share a step's microbatches",
       kFromOne, "dp data_parallel_size data_parallel_degree data_parallel_replicate_degree"},
      {"parallel.zero",
       &c.zero,
       kPrograms,
       "What replicas shard (ZeRO): 0 nothing, 1 the optimizer state, 2 also gradients, 3 also "
       "weights",
       {.most = 3},
       "zero_stage zero_optimization use_distributed_optimizer"},
      {"parallel.expert", &c.expert, kPrograms,
       "Consecutive replicas that divide the experts of each layer; must divide parallel.data",
       kFromOne, "ep expert_parallel_size expert_parallel_degree expert_model_parallel_size"},
      {"parallel.tensor", &c.tensor, kPrograms, "Ranks that divide the matrices of each layer",
       kFromOne, "tp tensor_parallel_size tensor_parallel_degree tensor_model_parallel_size"},
      {"parallel.expert_tensor", &c.expert_tensor, kPrograms,
       "How many of these ranks divide each expert: 1, or all of them (auto)", kAutomatic,
       "etp expert_tensor_parallel_size expert_tensor_parallel_degree"},
      {"parallel.sequence_parallel", &c.sequence_parallel, kPrograms,
       "Let these ranks divide the tokens between layers, too, if they divide them evenly",
       kFromZero, "sp enable_sequence_parallel"},
      {"parallel.gather_again", &c.gather_again, kPrograms,
       "Let the backward gather tokens again, instead of saving what F has gathered", kFromZero},
      {"parallel.context", &c.context, kPrograms, "Ranks that divide the tokens of each sample",
       kFromOne, "cp context_parallel_size context_parallel_degree"},
      {"parallel.context_exchange", &c.context_exchange, kPrograms,
       "What these ranks exchange: all keys and values, heads for tokens, or keys and values in "
       "turn",
       OneOf("all-gather ulysses ring"), "cp_comm_type context_parallel_rotate_method"},
      {"parallel.link", &c.link, kRun,
       "Link between expert or tensor ranks (100MB/s 50us): orders their nodes; threads emulate "
       "it"},
      {"parallel.shard_vocabulary", &c.shard_vocabulary, kPrograms,
       "Shard embedding, head and loss over the pipeline ranks (vocabulary parallelism)", kFromZero,
       "vocab_parallel vocabulary_parallel vocab_parallelism"},
      {"parallel.lookahead", &c.lookahead, kRun,
       "With zero=3: other stages whose weights a rank gathers while it uses one", kFromZero,
       "prefetch forward_prefetch max_active_stages"},
      {"parallel.residency", &c.residency, kRun,
       "With zero=3: other stages that a rank uses at most between two uses of weights that stay",
       kFromZero, "reshard_after_forward"},
  };
}

std::vector<Field> RecomputeFields(RecomputeConfig& c) {
  return {
      {"recompute.hold", &c.hold, kPrograms,
       "Activations that a microbatch keeps from F to its backward: all, least, or a size "
       "(1.5MiB)"},
      {"recompute.hold_for_weight", &c.hold_for_weight, kPrograms,
       "Activations that a microbatch keeps from I to W: all, least, or a size (1.5MiB)"},
      {"recompute.modules", &c.modules, kPrograms,
       "Modules of each block whose activations are recomputed",
       OneOf("all attention mlp attention+mlp"),
       "recompute_modules selective_recompute recompute_granularity"},
  };
}

std::vector<Field> OffloadFields(OffloadConfig& c) {
  return {
      {"offload.pool", &c.pool, kRun,
       "Folder of the file that activations move to; empty: the run's own"},
  };
}

std::vector<Field> CheckpointFields(CheckpointConfig& c) {
  return {
      {"checkpoint.every", &c.every, kRun,
       "Steps between checkpoints (0: only when the run is stopped)", kFromZero,
       "save_steps save_interval"},
      {"checkpoint.keep", &c.keep, kRun, "Number of newest checkpoints to keep; 0: all", kFromZero,
       "save_total_limit keep_latest_k"},
      {"checkpoint.best", &c.best, kRun,
       "Also keep the checkpoint of the lowest held-out loss, as checkpoints/best", kFromZero,
       "load_best_model_at_end save_best"},
  };
}

std::vector<Field> ValidationFields(ValidationConfig& c) {
  return {
      {"validation.freq", &c.freq, kRun,
       "Steps between computations of the held-out loss (0: only after the last step)", kFromZero,
       "eval_steps eval_interval eval_every eval_freq val_check_interval"},
      {"validation.patience", &c.patience, kRun,
       "Evaluations without a lower held-out loss after which the run ends; 0: it never does",
       kFromZero, "early_stopping_patience early_stopping"},
  };
}

std::vector<Field> OptimizerFields(OptimizerConfig& c) {
  return {
      {"optimizer.name", &c.name, kRun,
       "adamw, or muon: Muon for matrices except the embedding and the head, AdamW for the rest",
       OneOf("adamw muon"), "optim optimizer_type"},
      {"optimizer.lr", &c.lr, kRun, "Peak learning rate", kFromZero, "learning_rate max_lr"},
      {"optimizer.lr_end", &c.lr_end, kRun,
       "Learning rate of the last step, as a share of the peak", kUpToOne, "min_lr min_lr_factor"},
      {"optimizer.warmup", &c.warmup, kRun, "Steps from 0 to the peak learning rate", kFromZero,
       "warmup_steps lr_warmup_steps lr_warmup_iters"},
      {"optimizer.beta1", &c.beta1, kRun, "AdamW's beta1", kUpToOne, "adam_beta1"},
      {"optimizer.beta2", &c.beta2, kRun, "AdamW's beta2", kUpToOne, "adam_beta2"},
      {"optimizer.epsilon",
       &c.epsilon,
       kRun,
       "AdamW's epsilon",
       {.least = kLeastEpsilon},
       "eps adam_eps adam_epsilon"},
      {"optimizer.weight_decay", &c.weight_decay, kRun, "Weight decay of matrices"},
      {"optimizer.momentum", &c.momentum, kRun, "Muon's momentum", kUpToOne, "muon_momentum"},
      {"optimizer.balance_rate", &c.balance_rate, kRun,
       "Change of the biases of routers per step (model.balance=bias)", kFromZero,
       "bias_update_speed load_balance_coeff moe_router_bias_update_rate"},
      {"optimizer.adjust_lr_fn", &c.adjust_lr_fn, kRun,
       "Muon's factor of the learning rate: for a rate that suits AdamW, or the original one",
       OneOf("match_rms_adamw original")},
      {"optimizer.groups", &c.groups, kRun,
       "Settings of parameters by name: [{match: 'norm|bias', weight_decay: 0}]; see "
       "docs/training.md",
       kFromZero, "param_groups parameter_groups"},
      {"optimizer.gradient_dtype", &c.gradient_dtype, kPrograms,
       "Dtype of the gradients' sums over microbatches and replicas: f32 or bf16",
       OneOf("f32 bf16"),
       "grad_reduce_in_bf16 accumulate_allreduce_grads_in_fp32 reduce_dtype grad_accum_dtype"},
      {"optimizer.ema", &c.ema, kRun,
       "Decay per update of an exponential moving average of the weights; 0: none", kUpToOne,
       "ema_decay"},
      {"optimizer.clip", &c.clip, kRun,
       "Maximum global gradient norm; larger gradients are scaled down to it; 0: no clipping",
       kFromZero, "clip_grad grad_clip max_norm max_grad_norm"},
      {"optimizer.nonfinite", &c.nonfinite, kRun,
       "A gradient that is not finite fails the run (fail) or skips its step (skip)",
       OneOf("fail skip")},
      {"optimizer.post_validation", &c.post_validation, kRun,
       "With clip or skip: update before the norm is known, check it in the next step"},
  };
}

void Append(std::vector<Field> more, std::vector<Field>& fields) {
  fields.insert(fields.end(), std::make_move_iterator(more.begin()),
                std::make_move_iterator(more.end()));
}

}  // namespace

ConfigFields FieldsOf(TrainConfig& config) {
  ConfigFields fields;
  Append(RunFields(config), fields.all);
  Append(DataFields(config.data), fields.all);
  Append(CommonModelFields(config.model), fields.all);
  fields.first_of_model = fields.all.size();
  fields.options = MakeModelOptions(config.model.name);
  if (fields.options != nullptr) {
    for (Field& field : fields.options->Fields()) {
      const auto given = config.model.options.find(field.key);
      // CheckModel rejects invalid values.
      if (given != config.model.options.end()) static_cast<void>(SetField(field, given->second));
      field.key = "model." + field.key;
      fields.all.push_back(std::move(field));
    }
  }
  fields.end_of_model = fields.all.size();
  Append(PipelineFields(config.pipeline), fields.all);
  Append(ParallelFields(config.parallel), fields.all);
  Append(RecomputeFields(config.recompute), fields.all);
  Append(OffloadFields(config.offload), fields.all);
  Append(CheckpointFields(config.checkpoint), fields.all);
  Append(ValidationFields(config.validation), fields.all);
  Append(OptimizerFields(config.optimizer), fields.all);
  return fields;
}

void StoreOptions(const ConfigFields& fields, TrainConfig& config) {
  config.model.options.clear();
  if (fields.options == nullptr) return;
  for (const Field& field : fields.options->Fields()) {
    config.model.options[field.key] = FieldText(field);
  }
}

}  // namespace penstock
