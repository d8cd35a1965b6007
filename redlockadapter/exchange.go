package redlockadapter

import (
	"slices"
	"strings"
)

// exchange is what is sent to a node in one go, and what has been answered.
type exchange struct {
	calls []call
	next  int    // the call that is answered next
	again []call // those whose script the node did not know
	ops   int
	// taught: the scripts have been made known in this exchange.
	taught bool
}

// call is one script call of an exchange, with the ops that it carries. One with
// load makes a script known.
type call struct {
	script *script
	load   *script
	head   args
	ops    []*op
	args   []args // of the ops
	size   int    // arguments of the ops
}

// laneOrder is the order of the scripts within one exchange.
var laneOrder = [...]*script{releaseScript, acquireScript, raiseScript, renewScript, adoptScript, inspectScript}

// collect groups ops into calls. What need not be sent any more is answered.
func (l *lane) collect(k *link, batch []*op) exchange {
	x := exchange{calls: k.calls[:0]}
	for _, s := range laneOrder {
		first := len(x.calls)
		for _, o := range batch {
			if o.script != s {
				continue
			}
			if o.stop != nil && o.stop.Load() {
				o.answer(l.index, answer{err: errNotSent})
				continue
			}
			a := o.args
			if o.late != nil {
				a = o.late(l.index)
			}
			x.ops++
			c := x.callFor(first, o, a)
			c.ops, c.args, c.size = append(c.ops, o), append(c.args, a), c.size+a.count
		}
	}
	k.calls = x.calls
	return x
}

// callFor is the call that takes an op, one of number first and later.
func (x *exchange) callFor(first int, o *op, a args) *call {
	if o.script != inspectScript {
		for i := len(x.calls) - 1; i >= first; i-- {
			c := &x.calls[i]
			if c.head == o.head && len(c.ops) < maxBatch && c.size+a.count <= 6*maxBatch {
				return c
			}
		}
	}
	n := len(x.calls)
	if n < cap(x.calls) { // with the room that its ops had
		x.calls = x.calls[:n+1]
		c := &x.calls[n]
		*c = call{script: o.script, head: o.head, ops: c.ops[:0], args: c.args[:0]}
	} else {
		x.calls = append(x.calls, call{script: o.script, head: o.head})
	}
	return &x.calls[n]
}

// encode appends the calls as Redis wants them.
func (x *exchange) encode(k *link, b []byte) []byte {
	for i := range x.calls {
		c := &x.calls[i]
		if len(c.args) == 1 {
			b = slices.Grow(b, 128+len(c.head.text)+len(c.args[0].text))
		}
		if c.load != nil {
			b = appendCount(b, 3)
			b = appendArg(appendArg(appendArg(b, "script"), "load"), c.load.text)
			continue
		}
		b = appendCount(b, 4+c.head.count+c.size)
		b = append(append(b, c.script.begin...), k.node...)
		b = append(b, c.head.text...)
		for _, a := range c.args {
			b = append(b, a.text...)
		}
	}
	return b
}

// teach makes the scripts known to a node that has forgotten them, and asks
// again what it has not run.
func (l *lane) teach(again []call) {
	x := exchange{taught: true}
	for _, s := range laneScripts {
		x.calls = append(x.calls, call{load: s})
	}
	x.calls = append(x.calls, again...)
	for _, c := range again {
		x.ops += len(c.ops)
	}
	l.mu.Lock()
	l.exchange = x
	k := l.link
	l.mu.Unlock()
	commands := x.encode(k, nil)
	k.write(commands)
}

// hand gives each op its answer.
func (l *lane) hand(c *call, text string, err error) {
	if c.load != nil {
		return // if it failed the calls will
	}
	whole := err != nil || text == "empty" || strings.HasPrefix(text, "epoch ")
	if whole {
		l.backend.refused(text)
	}
	rest := text
	for _, o := range c.ops {
		a := answer{text: rest, err: err, sent: err != nil}
		if !whole && c.script != inspectScript {
			a.text, rest, _ = strings.Cut(rest, "\n")
		}
		o.answer(l.index, a)
	}
}
