// Package settings reads the configuration of a member, and reads and changes the file with its users.
//
// Each setting has one key, as a flag (--raft-listen), in the environment
// (LEASED_RAFT_LISTEN) and in a YAML file (raft-listen). Flags override the
// environment, which overrides the file.
//
// It checks each setting and their combination. It does not check whether an
// address can be reached or a certificate is valid.
//
// The users file is a list of names, each with the hashes of its secrets or the name of a certificate, and with
// rules. It does not contain the secrets: a lost secret cannot be recovered, only replaced. A member does not notice a
// change of the file: send it SIGHUP.
//
// The nouns, in reading order:
//
//   - [Settings]: the values and their sources.
//   - key: one setting; keys.go has the table of all.
//   - [Error]: the key, the value and the rule that it breaks.
//   - [RedisAccess]: the user, password and TLS of connections to a Redis node; [RedisNodes]: the
//     same for several nodes, with exceptions for single nodes. A password never leaves the
//     machine unencrypted unless redis-insecure allows it: the connection fails before it is dialed.
//   - users.go has [ReadUsers]; userchange.go has [AddUser] and the other changes of the users file.
package settings
