// Package kraft takes over a data directory that Apache Kafka wrote in KRaft mode, one node alone: it reads the metadata log
// (__cluster_metadata-0) once and makes of it the catalog and the journal with which the broker then opens the directory.
//
// It is not a controller and no part of a running broker: it never writes metadata records, never touches what is in a
// partition's directory, and is done when Import returns. What it takes and leaves is told to users in docs/import.md.
//
// Invariants:
//   - the directory becomes kaas's by one rename, the last thing of any weight. Before it nothing is changed that Apache
//     looks at; an import that ended before it is begun again by the next, or forgotten;
//   - nothing is guessed: a metadata record of an unknown kind or version, a gap, damage, a second node, a partition elsewhere,
//     a log in an old message format refuse the import, naming what they found (Refusal);
//   - what no topic owns is never handed to the broker, which would remove it, unless the metadata log says it was deleted.
package kraft
