// Package state is a keyed store: get, put, delete, ordered prefix scan, atomic batches, group commit, checkpoints. The
// broker's catalog and Parsley's state stores live in it.
//
// It is not a cache, has no snapshots and no transactions over several batches, and knows nothing of what it stores. All
// keys are in memory (about 110 bytes for a key of 60); values stay in the files and are cached within a bound.
//
// Invariants:
//   - a batch is applied whole or not at all, also over a crash;
//   - batches survive in order: if one survives a crash, so do all before it;
//   - a batch for which Apply(b, true) returned nil survives every crash;
//   - after a failed sync nothing more is accepted (ErrPoisoned): what of the unsynced part the disk has is not known, and
//     opening the store again tells it;
//   - what Get and Scan return was checked against a checksum over key and value.
//
// A batch is visible to readers as soon as Apply wrote it, which is before it is durable.
//
// # FORMAT
//
// Integers are little-endian, "uvarint" is that of encoding/binary, every CRC is CRC-32C. The directory of a store holds
//
//	0000000001.log   operations, numbered from 1; the highest number is the one being appended to
//	0000000001.ckp   a checkpoint: the index as of some place in the log
//	*.tmp            a checkpoint that was being written; removed at start
//
// Log file, header of 32 bytes and frames until the end:
//
//	header = "kaasslog"  u32 version (1)  u32 file number  u64 sequence of the first frame  u32 CRC of the 24 bytes before  u32 0
//	frame  = u32 length of the operations  u32 CRC of length, sequence, lag, operations  u64 sequence  u32 lag  operations
//	put    = 1  uvarint key length  uvarint value length  key  value  u32 CRC of key and value
//	delete = 2  uvarint key length  key
//
// One frame is one batch. Sequences go up by one, over file borders too. The lag says how far behind the sequence of this
// frame the last sequence was that was known to be synced when the frame was written (0xffffffff: that far or farther).
//
// Checkpoint file, blocks to the end: u32 length of the payload, u32 CRC of length and payload, payload. Payloads:
//
//	first   'H'  "kaassckp"  u32 version (1)  u32 replay file  u32 replay offset  u64 replay sequence
//	middle  'E'  entries in key order: uvarint bytes shared with the key before  uvarint further bytes  these bytes
//	             uvarint file  uvarint offset of the value  uvarint length of the value
//	last    'Z'  u64 number of entries  u32 synced file  u32 synced offset
//
// The shared prefix starts afresh in each block. The index of a checkpoint is fuzzy: it holds every change before the replay
// place and perhaps some after it, all of which are before the synced place. Replaying the log from the replay place makes it
// exact. Files before the replay file hold values only and are never replayed, so deletions in them may be forgotten; a file
// before it that no entry names is left over and removed at start.
//
// Recovery reads the newest checkpoint and replays the log from there. It ends at the first frame that is cut, has a wrong
// CRC, or a sequence out of turn. That is a torn tail, cut off and synced, unless the lost frame is known to have been
// durable: it lies before the synced place of the checkpoint, or a whole frame farther on says by its lag that it was synced.
// Then it is damage, and Open returns a CorruptError naming file and offset and changes nothing.
//
// What is kept and not known to be synced, by the synced place, a later file, or the lag of a later frame, is written once more, byte for
// byte, and synced, before the store is open: the process before may have died right behind a sync that failed, and what the kernel has
// failed to write it takes for written. A later sync alone would succeed and bring nothing to the disk.
//
// Assumptions about the disk: what fdatasync returned for stays; a name is durable after fsync of its directory; a rename is
// atomic. Nothing is assumed about the order or the granularity in which unsynced bytes reach the disk.
package state
