// Package quota decides who has used more than his share: bytes produced and fetched, time of the processor, changes of topics, and new
// connections of an address. It knows users, client ids and addresses, and holds the limits that AlterClientQuotas set (KIP-13, 55, 124,
// 257, 546, 599, 612).
//
// It throttles nobody itself: it says for how long somebody is to be left unread (KIP-219), and the caller does so. It reads no clock,
// keeps nothing on disk (package catalog does), and knows no protocol.
//
// Invariants:
//   - rates, windows and the length of a throttle are Apache Kafka's (its classes Rate and TokenBucket);
//   - as long as no limit is set for users and client ids, Rules is nil, and a request costs one atomic load;
//   - a limit is looked up again only when the limits changed, or the connection's client id did; charging a meter takes its own lock
//     and allocates nothing;
//   - meters of clients that are gone are forgotten, and there are never many more of them than clients that did something lately.
package quota
