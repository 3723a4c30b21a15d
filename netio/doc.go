// Package netio is the socket layer of the broker: event loops over epoll,
// connections that carry frames (a 4-byte big-endian size, then that many
// bytes), replies in the order of their requests, file slices by sendfile,
// TLS, limits of connections, back-pressure, timers and posts from other goroutines. Linux only.
//
// It is not a protocol: it never looks into a frame. It knows nothing of the
// rest of the broker, and nothing in it blocks except the wait of an idle loop,
// the goroutines of TLS handshakes, and those that read old file slices ahead.
//
// Invariants
//
//   - A connection belongs to one loop for its whole life. All its state is
//     touched on that loop only; other goroutines reach it through Loop.Post,
//     Reply.Post and Reply.DropPost.
//
//   - Every Reply reserved by NewReply is completed exactly once (Send, Post,
//     Drop or DropPost). Replies leave in the order they were reserved. Every
//     Ref given in a Part is released exactly once, also when the connection
//     died before or the loop has ended.
//
//   - Bytes of a frame stay valid until RoundEnd has returned, never longer.
//
//   - Memory follows the bytes that arrived, never the size a peer declares. A
//     connection between two frames owns no buffer.
//
//   - A connection with too many replies outstanding, or too many bytes of them
//     in memory, is not read until half of them are gone.
//
//   - A loop without work sleeps in epoll_wait without a tick; a goroutine that
//     posts to it writes its eventfd only if it sleeps.
//
//   - Bytes of TLS are the same frames and replies, decrypted and encrypted on the
//     loop in turns of 64 KiB; a file slice is read and encrypted in place of
//     sendfile. At most one turn of a connection is encrypted and not sent.
//
//   - A file slice that its owner calls old is sent only once it was seen in the page cache
//     or a worker has read it; the connection waits, the loop does not. One that a worker read
//     is looked at again just before it is sent.
//
//   - A loop looks at its sockets again after it has sent 256 KiB of files, one turn more at most:
//     with 16 turns of 64 KiB an answer waited behind 0.6 ms of sendfile in the mean, now behind 0.15.
//
//   - A new connection goes to the loop with the fewest, in turn among equals, and
//     stays there: that spreads connections evenly, and evens loops out again as
//     connections end and come. Living ones are never moved, for their state has
//     no lock; one that is busier than others is not known when it is placed.
//
// A round of a loop: one epoll_wait; posts; due timers; one read for each
// readable connection and the frames in it; Handler.RoundEnd; what that posted (in a
// round of its own, a system call later, a heartbeat cost 4 of 19 us more); one send for each
// connection with completed replies; then turns of 64 KiB of sendfile, round
// robin. If the read buffer fills up the round is cut in two there, so RoundEnd
// may run more than once between two waits.
//
// Waiting is an ordinary Syscall on an ordinary goroutine, level-triggered:
// RawSyscall around a blocking wait keeps the garbage collector from ever
// stopping the goroutine, LockOSThread costs 13–23 %, spinning four times the
// CPU (design: measured facts).
package netio
