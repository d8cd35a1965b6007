package raftstore

import (
	"fmt"
	"slices"

	"github.com/leased-project/leased/raftstore/transport"
)

// acceptPeer returns an error if a peer whose certificate names these members must not
// connect: none of them is in the newest configuration of this node, committed or not. A
// node that has not joined, or has not caught up, has no configuration to rely on and
// accepts every member certificate.
func (n *Node) acceptPeer(ids []string) error {
	select {
	case <-n.started:
	default:
		return transport.ErrStarting
	}
	members := n.Members()
	if len(members) == 0 || n.CatchingUp() {
		return nil
	}
	var known []string
	for _, m := range members {
		if slices.Contains(ids, m.ID) {
			return nil
		}
		known = append(known, m.ID)
	}
	return fmt.Errorf("%w: its certificate names the members %q, and the members that node %s knows are %q; "+
		"let the peer join, or, if it joined while this node was stopped, transfer the leadership to one of the known "+
		"members until this node has caught up",
		transport.ErrPeer, ids, n.ID(), known)
}

// RecheckPeers closes the connections of peers that would no longer be accepted. Call it
// after a change of the certificates. Changes of the members and certificates that expire
// are noticed within a second.
func (n *Node) RecheckPeers() {
	if t, ok := n.transport.(*transport.TCP); ok {
		t.Recheck()
	}
}
