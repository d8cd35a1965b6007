// Package redisaccess converts settings to go-redis options: user, password and
// TLS.
//
// It does not check whether a node can be reached or accepts the user.
//
// A password never leaves the machine unencrypted unless redis-insecure allows it:
// the connection fails before it is dialed.
//
// The nouns: [Access], the options of one node; [Nodes], those of several nodes,
// with exceptions for single nodes.
package redisaccess
