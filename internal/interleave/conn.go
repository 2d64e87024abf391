package interleave

import (
	"bytes"
	"encoding/binary"
	"net"
	"strings"
	"sync"
)

// conn is an actor's connection. It hands what the client writes on to the server
// message by message, and stops before each statement that counts, also in the middle of
// a pipeline: the server runs what it has got so far and, being asked to flush after each
// statement, tells how it went, while the client still waits to have written all.
type conn struct {
	net.Conn
	actor *Actor

	started    bool              // the first message, which has no type, is written
	statements map[string]string // prepared ones, by their names
	dirty      bool              // the transaction has run a statement that counts

	mu      sync.Mutex
	changed *sync.Cond
	answers bytes.Buffer // what the server said and the client has not read
	failed  error        // of the connection
	open    int          // statements that the server has not finished
	skips   bool         // after an error the server skips all up to the next sync
}

func newConn(c net.Conn, actor *Actor) *conn {
	x := &conn{Conn: c, actor: actor, statements: map[string]string{}}
	x.changed = sync.NewCond(&x.mu)
	go x.listen()
	return x
}

// Write hands on messages, stopping where statements count.
func (c *conn) Write(b []byte) (int, error) {
	n := len(b)
	if !c.started {
		c.started = true
		return c.Conn.Write(b)
	}
	var out []byte
	send := func() error {
		_, err := c.Conn.Write(out)
		out = out[:0]
		return err
	}
	for len(b) > 0 {
		size := 1 + int(binary.BigEndian.Uint32(b[1:]))
		message := b[:size]
		b = b[size:]
		switch message[0] {
		case 'P': // parse: name, statement
			name, rest, _ := bytes.Cut(message[5:], []byte{0})
			sql, types, _ := bytes.Cut(rest, []byte{0})
			c.statements[string(name)] = string(sql)
			message = parse(name, c.actor.mutate(string(sql)), types)
		case 'B': // bind: portal, name
			_, rest, _ := bytes.Cut(message[5:], []byte{0})
			name, _, _ := bytes.Cut(rest, []byte{0})
			if sql := c.statements[string(name)]; c.counts(sql) {
				if err := send(); err != nil {
					return 0, err
				}
				c.stop(sql)
			}
		case 'E': // execute
			message = append(bytes.Clone(message), 'H', 0, 0, 0, 4) // and flush
			c.begin()
		case 'Q': // simple query
			if sql := string(bytes.TrimRight(message[5:], "\x00")); c.counts(sql) {
				if err := send(); err != nil {
					return 0, err
				}
				c.stop(sql)
				message = query(c.actor.mutate(sql))
			}
			c.begin()
		}
		out = append(out, message...)
	}
	return n, send()
}

// parse encodes a Parse message.
func parse(name []byte, sql string, types []byte) []byte {
	size := 4 + len(name) + 1 + len(sql) + 1 + len(types)
	m := binary.BigEndian.AppendUint32([]byte{'P'}, uint32(size))
	m = append(append(m, name...), 0)
	m = append(append(m, sql...), 0)
	return append(m, types...)
}

// query encodes a Query message.
func query(sql string) []byte {
	m := binary.BigEndian.AppendUint32([]byte{'Q'}, uint32(4+len(sql)+1))
	return append(append(m, sql...), 0)
}

// counts reports whether a statement is a step of its own. What neither writes nor locks
// nor reads what others write is not, and neither is the end of a transaction that has
// had none but such.
func (c *conn) counts(sql string) bool {
	name := nameOf(sql)
	switch {
	case strings.HasPrefix(name, "begin"):
		c.dirty = false
		return false
	case name == "commit" || name == "rollback":
		return c.dirty
	case c.actor.isStep(name):
		c.dirty = c.dirty || !reads[name]
		return true
	}
	return false
}

// nameOf returns a statement's name in db/queries, or the statement.
func nameOf(sql string) string {
	rest, named := strings.CutPrefix(sql, "-- name: ")
	if !named {
		return sql
	}
	name, _, _ := strings.Cut(rest, " ")
	return name
}

// stop waits until what was sent has run, and then for the actor's turn.
func (c *conn) stop(sql string) {
	c.mu.Lock()
	for c.open > 0 && !c.skips && c.failed == nil {
		c.changed.Wait()
	}
	over := c.skips || c.failed != nil
	c.mu.Unlock()
	if !over {
		c.actor.stop(nameOf(sql))
	}
}

func (c *conn) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open++
}

// listen takes what the server says, and counts the statements that ended.
func (c *conn) listen() {
	var pending []byte
	buf := make([]byte, 64<<10)
	for {
		n, err := c.Conn.Read(buf)
		c.mu.Lock()
		c.answers.Write(buf[:n])
		pending = append(pending, buf[:n]...)
		for len(pending) >= 5 {
			size := 1 + int(binary.BigEndian.Uint32(pending[1:]))
			if len(pending) < size {
				break
			}
			switch pending[0] {
			case 'C', 'I', 's': // complete, empty, suspended
				c.open = max(c.open-1, 0)
			case 'E':
				c.skips = true
			case 'Z': // ready for the next
				c.open, c.skips = 0, false
			case 'K':
				c.actor.pid.Store(int64(binary.BigEndian.Uint32(pending[5:])))
			}
			pending = pending[size:]
		}
		c.failed = err
		c.changed.Broadcast()
		c.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// Read gives the client what the server said.
func (c *conn) Read(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.answers.Len() == 0 && c.failed == nil {
		c.changed.Wait()
	}
	if c.answers.Len() == 0 {
		return 0, c.failed
	}
	return c.answers.Read(b)
}
