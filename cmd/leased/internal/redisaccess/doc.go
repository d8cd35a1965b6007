// Package redisaccess turns settings into the options of connections to Redis
// nodes: user, password and TLS.
//
// What it does not give: it does not check whether a node can be reached, or
// whether the node accepts the user.
//
// A password never leaves the machine in clear, unless the operator allows that
// with redis-insecure: the connection is refused before it is dialed.
//
// The nouns: [Access], how a node is reached; [Nodes], the same for several
// nodes, with exceptions for some of them.
package redisaccess
