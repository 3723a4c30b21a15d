// Package floor is the least work that a broker can do for a produce and a fetch, to compare a real one with.
//
// One epoll loop. Produce: receive into one hot 256 KiB buffer, check the CRC-32C of each batch, write its offset into it,
// and write the batches of one receive with as few pwritev calls as there are places in the file. Fetch: a short header,
// then sendfile of the stored bytes in turns of 64 KiB, round robin over the connections. The other requests of the load
// generator get the shortest answer that satisfies it.
//
// ListenSynced makes the least group commit: the batches of all partitions go to one file that was written before and is written over and over,
// and the loop itself gathers from the sockets until none has more, writes, syncs, and answers. Nothing is stored twice, no log is kept that
// could be read, and nothing runs beside the loop.
//
// It is no broker. It understands only the frames of package frames, trusts their layout, keeps one file per partition, else never
// syncs, never waits for data, and wants all batches of a partition to be alike, so that it needs no index. What it
// reaches on a machine bounds what a broker can reach there with the same client.
package floor
