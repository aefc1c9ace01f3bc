// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package systemdtest is a systemd for tests. It speaks D-Bus over a unix socket and keeps slices in memory; it makes
// no cgroups.
//
// It records the calls it gets, and gives the answers that systemd 252 gives, errors included. A [Fault] makes it hang,
// hang up, or lose the result of a job.
//
// It does not model: units other than slices, what properties mean (any value of any name is taken, but for
// Delegate, which slices do not have), the rights of callers, and what a message bus does but to pass messages on.
package systemdtest

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"

	"github.com/godbus/dbus/v5"
)

const (
	busName  = "org.freedesktop.systemd1"
	manager  = busName + ".Manager"
	rootPath = "/org/freedesktop/systemd1"
)

// Systemd is the server.
type Systemd struct {
	listener net.Listener
	isBus    bool
	running  sync.WaitGroup

	mu      sync.Mutex // guards what follows
	conns   map[*peer]bool
	units   map[string]*Unit
	faults  map[string][]Fault
	calls   []string
	jobs    uint32
	version string
	closed  bool
	observe func(method, unit string)
}

// Unit is a unit in memory.
type Unit struct {
	State      string // ActiveState
	Properties map[string]dbus.Variant
	Job        uint32 // that has not ended
}

// peer is a connection.
type peer struct {
	net.Conn
	once    sync.Once     // to close gone
	gone    chan struct{} // closed by HangUp
	matches bool          // has asked for signals; guarded by the server's lock
}

// Start listens at a path, as a message bus or as systemd itself.
func Start(path string, isBus bool) (*Systemd, error) {
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	s := &Systemd{
		listener: l, isBus: isBus, version: "252.38-1~deb12u1",
		conns: map[*peer]bool{}, units: map[string]*Unit{}, faults: map[string][]Fault{},
	}
	s.running.Go(s.accept)
	return s, nil
}

func (p *peer) hangUp() {
	p.once.Do(func() { close(p.gone) })
	_ = p.Close()
}

// Close stops listening and hangs up. It returns when nothing of the server runs any more.
func (s *Systemd) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	_ = s.listener.Close()
	s.DisconnectAll()
	s.running.Wait()
}

// DisconnectAll ends all connections, as systemd does when it re-executes itself, and a bus that is restarted.
func (s *Systemd) DisconnectAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for p := range s.conns {
		p.hangUp()
	}
}

// SetVersion sets the version that callers are told.
func (s *Systemd) SetVersion(v string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version = v
}

// SetObserver has f called with each call about a unit that succeeds, before its result is sent. It is where a test makes
// the directory of a slice.
func (s *Systemd) SetObserver(f func(method, unit string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.observe = f
}

// SetUnit sets a unit as if someone else had.
func (s *Systemd) SetUnit(name string, u Unit) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.units[name] = &u
}

// Unit returns a copy of a unit. One that is not there has no state.
func (s *Systemd) Unit(name string) Unit {
	s.mu.Lock()
	defer s.mu.Unlock()
	if u := s.units[name]; u != nil {
		return *u
	}
	return Unit{}
}

// Calls returns the calls since the last time, each as a method and what it was given.
func (s *Systemd) Calls() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	calls := s.calls
	s.calls = nil
	return calls
}

func (s *Systemd) accept() {
	for {
		conn, err := s.listener.Accept()
		if err != nil {
			return
		}
		p := &peer{Conn: conn, gone: make(chan struct{})}
		s.mu.Lock()
		s.conns[p] = true
		if s.closed {
			p.hangUp()
		}
		s.mu.Unlock()
		s.running.Go(func() {
			s.serve(p)
			p.hangUp()
			s.mu.Lock()
			delete(s.conns, p)
			s.mu.Unlock()
		})
	}
}

// serve authenticates a peer and answers it until it hangs up.
func (s *Systemd) serve(p *peer) {
	in := bufio.NewReader(p)
	if s.next("Auth") == Hang {
		_, _ = in.WriteTo(io.Discard)
		return
	}
	if !authenticate(in, p) {
		return
	}
	for {
		msg, err := dbus.DecodeMessage(in)
		if err != nil || !s.answer(p, msg) {
			return
		}
	}
}

// authenticate is the server's side of the EXTERNAL mechanism, with every user welcome.
func authenticate(in *bufio.Reader, p *peer) bool {
	if zero, err := in.ReadByte(); err != nil || zero != 0 {
		return false
	}
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return false
		}
		var answer string
		switch words := strings.Fields(line); {
		case len(words) == 1 && words[0] == "AUTH":
			answer = "REJECTED EXTERNAL"
		case len(words) > 1 && words[0] == "AUTH":
			answer = "DATA"
		case len(words) > 0 && words[0] == "DATA":
			answer = "OK 0123456789abcdef0123456789abcdef"
		case len(words) > 0 && words[0] == "BEGIN":
			return true
		default:
			answer = "ERROR"
		}
		if _, err := fmt.Fprintf(p, "%s\r\n", answer); err != nil {
			return false
		}
	}
}

// send sends a message of a type; headers that are the same for all are added. The server's lock is held.
func (p *peer) send(kind dbus.Type, headers map[dbus.HeaderField]dbus.Variant, body ...any) {
	headers[dbus.FieldSender] = dbus.MakeVariant(":1.0")
	if len(body) > 0 {
		headers[dbus.FieldSignature] = dbus.MakeVariant(dbus.SignatureOf(body...))
	}
	msg := &dbus.Message{Type: kind, Headers: headers, Body: body}
	_ = msg.EncodeTo(p, binary.LittleEndian)
}
