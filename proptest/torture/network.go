//go:build linux

package torture

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
)

// here is the host of workers, Redis and PostgreSQL in a network.
const here = -1

// nowhere is an unused hardware address: packets to it are lost silently.
const nowhere = "02:00:00:00:00:01"

// network connects the members. With namespaces, each member has one on a bridge, and each
// direction between two members can be cut. Without them all use the loopback interface.
type network struct {
	namespaces bool
	why        string // why there are none
	prefix     string // of the names
	bridge     string
	subnet     string // as "10.88.7."
	mu         sync.Mutex
	cuts       map[[2]int]bool
}

// newNetwork creates a network, with namespaces if possible.
func newNetwork(members int) *network {
	n := &network{cuts: map[[2]int]bool{}}
	if os.Geteuid() != 0 {
		n.why = "no partitions: network namespaces need root"
		return n
	}
	if _, err := exec.LookPath("ip"); err != nil {
		n.why = "no partitions: ip is missing (Debian: apt-get install iproute2)"
		return n
	}
	// Use a free number, since another run may be active.
	for range 50 {
		k := rand.IntN(250) + 1
		n.prefix, n.bridge, n.subnet = fmt.Sprintf("leased-t%d-", k), fmt.Sprintf("ltort%d", k), fmt.Sprintf("10.88.%d.", k)
		err := n.build(members)
		if err == nil {
			n.namespaces = true
			return n
		}
		n.why = "no partitions: " + err.Error()
		if !errors.Is(err, errTaken) {
			break
		}
	}
	n.subnet = ""
	return n
}

var errTaken = errors.New("the name of the bridge is taken")

func (n *network) build(members int) error {
	if _, err := net.InterfaceByName(n.bridge); err == nil {
		return errTaken
	}
	if err := ip("link", "add", n.bridge, "type", "bridge"); err != nil {
		return err
	}
	err := ip("addr", "add", n.address(here)+"/24", "dev", n.bridge)
	if err == nil {
		err = ip("link", "set", n.bridge, "up")
	}
	for i := 0; i < members && err == nil; i++ {
		err = n.attach(i)
	}
	if err != nil {
		n.remove(members)
	}
	return err
}

// attach creates the namespace of a member, connected to the bridge.
func (n *network) attach(i int) error {
	name, outer := n.namespace(i), fmt.Sprintf("%s-%d", n.bridge, i)
	for _, args := range [][]string{
		{"netns", "add", name},
		{"link", "add", outer, "type", "veth", "peer", "name", "eth0", "netns", name},
		{"link", "set", outer, "master", n.bridge},
		{"link", "set", outer, "up"},
		{"-n", name, "link", "set", "lo", "up"},
		{"-n", name, "addr", "add", n.address(i) + "/24", "dev", "eth0"},
		{"-n", name, "link", "set", "eth0", "up"},
	} {
		if err := ip(args...); err != nil {
			return err
		}
	}
	return nil
}

func (n *network) remove(members int) {
	for i := range members {
		_ = ip("netns", "del", n.namespace(i)) // deletes its interface, too
	}
	_ = ip("link", "del", n.bridge)
}

func (n *network) namespace(i int) string { return fmt.Sprintf("%s%c", n.prefix, 'a'+i) }

// address returns the address of a member, or of here.
func (n *network) address(i int) string {
	switch {
	case n.subnet == "":
		return "127.0.0.1"
	case i == here:
		return n.subnet + "254"
	}
	return fmt.Sprintf("%s%d", n.subnet, i+1)
}

// in returns the command that runs args in the namespace of member i.
func (n *network) in(i int, args []string) []string {
	if !n.namespaces {
		return args
	}
	return append([]string{"ip", "netns", "exec", n.namespace(i)}, args...)
}

// cut drops all packets from one host to another.
func (n *network) cut(from, to int) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cuts[[2]int{from, to}] = true
	return ip(n.neighbour(from, "replace", n.address(to), "lladdr", nowhere, "nud", "permanent")...)
}

// heal repairs all cuts.
func (n *network) heal() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	var errs []error
	for c := range n.cuts {
		if err := ip(n.neighbour(c[0], "del", n.address(c[1]))...); err != nil {
			errs = append(errs, err)
		}
	}
	clear(n.cuts)
	return errors.Join(errs...)
}

// neighbour returns an ip command for a neighbour entry of a host.
func (n *network) neighbour(at int, command, address string, more ...string) []string {
	args := append([]string{"neigh", command, address}, more...)
	if at == here {
		return append(args, "dev", n.bridge)
	}
	return append(append([]string{"-n", n.namespace(at)}, args...), "dev", "eth0")
}

func ip(args ...string) error {
	command := exec.Command("ip", args...)
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // ignore Ctrl-C of the terminal
	out, err := command.CombinedOutput()
	if err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
