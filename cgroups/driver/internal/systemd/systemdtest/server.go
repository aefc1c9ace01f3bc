// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package systemdtest is a fake systemd for tests. It serves D-Bus on a Unix socket and keeps slices in memory; it creates no
// cgroups.
//
//	s, err := systemdtest.Start(path, false) // as systemd's private socket
//	defer s.Close()
//	s.Inject("StopUnit", systemdtest.Hang)
//	client := systemd.New(systemd.Options{Sockets: []systemd.Socket{{Path: path}}})
//	...
//	calls := s.Calls()
//
// It records calls and returns the replies and errors of systemd 252. A [Fault] makes a call fail.
//
// It does not model other units than slices, the meaning of properties (it accepts any except Delegate), permissions, or a
// message bus beyond forwarding.
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

// Systemd is a fake systemd server. All methods may be called by several goroutines.
type Systemd struct {
	listener net.Listener
	isBus    bool
	running  sync.WaitGroup

	mu      sync.Mutex // guards the fields below
	conns   map[*peer]bool
	units   map[string]*Unit
	faults  map[string][]Fault
	calls   []string
	jobs    uint32
	version string
	closed  bool
	observe func(method, unit string)
}

// Unit is a unit of the fake systemd.
type Unit struct {
	State      string // ActiveState
	Properties map[string]dbus.Variant
	Job        uint32 // ID of the running job; zero: none
}

// peer is a connection of a client.
type peer struct {
	conn         net.Conn
	once         sync.Once     // closes disconnected
	disconnected chan struct{} // closed by disconnect
	matches      bool          // has subscribed to signals; guarded by the server's lock
}

// Start listens on the Unix socket at path and simulates systemd. If isBus is true, it simulates a message bus to which
// systemd is connected.
func Start(path string, isBus bool) (*Systemd, error) {
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	s := &Systemd{
		listener: l, isBus: isBus, version: "252.38-1~deb12u1",
		conns: map[*peer]bool{}, units: map[string]*Unit{}, faults: map[string][]Fault{},
	}
	s.running.Go(s.acceptConns)
	return s, nil
}

func (p *peer) disconnect() {
	p.once.Do(func() { close(p.disconnected) })
	_ = p.conn.Close()
}

// Close disconnects all clients and stops the server. It returns after all goroutines of the server have returned.
func (s *Systemd) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	_ = s.listener.Close()
	s.DisconnectAll()
	s.running.Wait()
}

// DisconnectAll closes all connections, as systemd does when it re-executes itself, and as a bus does when it restarts.
// Clients can connect again.
func (s *Systemd) DisconnectAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for p := range s.conns {
		p.disconnect()
	}
}

// SetVersion sets the version that clients read.
func (s *Systemd) SetVersion(v string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version = v
}

// SetObserver makes the server call f after each successful call about a unit, before it sends the result. Tests use f to
// create the directory of a slice. The function f must not call the server.
func (s *Systemd) SetObserver(f func(method, unit string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.observe = f
}

// SetUnit sets the state of the named unit, as if another client of systemd had changed it.
func (s *Systemd) SetUnit(name string, unit Unit) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.units[name] = &unit
}

// Unit returns a copy of the unit with this name. If there is none, it returns the zero Unit.
func (s *Systemd) Unit(name string) Unit {
	s.mu.Lock()
	defer s.mu.Unlock()
	if u := s.units[name]; u != nil {
		return *u
	}
	return Unit{}
}

// Calls returns the received calls about units since the last call of Calls. Each line has the method and its arguments.
func (s *Systemd) Calls() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	calls := s.calls
	s.calls = nil
	return calls
}

func (s *Systemd) acceptConns() {
	for {
		conn, err := s.listener.Accept()
		if err != nil {
			return
		}
		p := &peer{conn: conn, disconnected: make(chan struct{})}
		s.mu.Lock()
		s.conns[p] = true
		if s.closed {
			p.disconnect()
		}
		s.mu.Unlock()
		s.running.Go(func() {
			s.servePeer(p)
			p.disconnect()
			s.mu.Lock()
			delete(s.conns, p)
			s.mu.Unlock()
		})
	}
}

// servePeer authenticates a client, and handles its messages until it disconnects.
func (s *Systemd) servePeer(p *peer) {
	in := bufio.NewReader(p.conn)
	if s.takeFault("Auth") == Hang {
		_, _ = in.WriteTo(io.Discard)
		return
	}
	if !authenticate(in, p) {
		return
	}
	for {
		msg, err := dbus.DecodeMessage(in)
		if err != nil || !s.handleMessage(p, msg) {
			return
		}
	}
}

// authenticate performs the server side of the D-Bus authentication EXTERNAL. It returns false if the client does not
// complete it.
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
		case len(words) > 0 && words[0] == "DATA": // any user
			answer = "OK 0123456789abcdef0123456789abcdef"
		case len(words) > 0 && words[0] == "BEGIN":
			return true
		default:
			answer = "ERROR"
		}
		if _, err := fmt.Fprintf(p.conn, "%s\r\n", answer); err != nil {
			return false
		}
	}
}

// sendMessage sends a message to the client. It adds the sender and the signature of the body to headers. The caller holds
// the server's lock.
func (p *peer) sendMessage(kind dbus.Type, headers map[dbus.HeaderField]dbus.Variant, body ...any) {
	headers[dbus.FieldSender] = dbus.MakeVariant(":1.0")
	if len(body) > 0 {
		headers[dbus.FieldSignature] = dbus.MakeVariant(dbus.SignatureOf(body...))
	}
	msg := &dbus.Message{Type: kind, Headers: headers, Body: body}
	_ = msg.EncodeTo(p.conn, binary.LittleEndian)
}
