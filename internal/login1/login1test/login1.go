// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package login1test is a systemd-logind for tests, behind a message bus of its own: it speaks D-Bus over a unix socket, and passes
// file descriptors as the real one does.
//
// A shutdown begins with [Logind.Shutdown], waits for the inhibitors that are out, and ends with [Logind.Cancel]. Reloading reads
// InhibitDelayMaxSec from a directory that the test names.
//
// It does not model: users, seats and sessions, inhibitors that block, the end of the wait after InhibitDelayMaxSec (which a test looks at
// itself, with [Logind.Held]), rights of callers, and what a message bus does but to pass messages on.
package login1test

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/godbus/dbus/v5"
)

const (
	manager = "org.freedesktop.login1.Manager"
	path    = "/org/freedesktop/login1"
)

// Logind is the server.
type Logind struct {
	// ConfigDir is where Reload looks for InhibitDelayMaxSec. Empty: it changes nothing.
	ConfigDir string

	listener *net.UnixListener
	running  sync.WaitGroup

	mu       sync.Mutex // guards what follows
	conns    map[*peer]bool
	shutdown bool
	delay    time.Duration
	held     int
	locks    []*os.File // our ends
	calls    []string
	deny     map[string]bool
	mute     map[string]bool
	closed   bool
}

// peer is a connection.
type peer struct {
	*net.UnixConn
	matches bool
}

// Start listens at a path.
func Start(socket string) (*Logind, error) {
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l := &Logind{listener: listener, conns: map[*peer]bool{}, delay: 5 * time.Second, deny: map[string]bool{}, mute: map[string]bool{}}
	l.running.Go(l.accept)
	return l, nil
}

// Close ends all, and returns when nothing of it runs any more.
func (l *Logind) Close() {
	l.mu.Lock()
	l.closed = true
	for _, lock := range l.locks {
		_ = lock.Close()
	}
	l.mu.Unlock()
	_ = l.listener.Close()
	l.CloseConnections()
	l.running.Wait()
}

// HangUp ends all connections, as a message bus that is restarted. Inhibitors stay.
func (l *Logind) CloseConnections() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for p := range l.conns {
		_ = p.Close()
	}
}

// Deny has a method fail, or work again.
func (l *Logind) SetDenied(method string, deny bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deny[method] = deny
}

// Mute has a method get no answer, or one again.
func (l *Logind) SetSilent(method string, mute bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mute[method] = mute
}

// SetDelay sets InhibitDelayMaxSec.
func (l *Logind) SetDelay(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.delay = d
}

// Shutdown begins a shutdown, and Cancel takes it back.
func (l *Logind) Shutdown() { l.set(true) }

// Cancel takes a shutdown back.
func (l *Logind) CancelShutdown() { l.set(false) }

func (l *Logind) set(shutdown bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.shutdown = shutdown
	l.signalLocked(shutdown)
}

// Signal sends the signal although nothing has changed, as every program on a bus may that has the right.
func (l *Logind) SendSignal(shutdown bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.signalLocked(shutdown)
}

func (l *Logind) signalLocked(shutdown bool) {
	for p := range l.conns {
		if p.matches {
			p.send(dbus.TypeSignal, map[dbus.HeaderField]dbus.Variant{
				dbus.FieldPath: dbus.MakeVariant(dbus.ObjectPath(path)), dbus.FieldInterface: dbus.MakeVariant(manager),
				dbus.FieldMember: dbus.MakeVariant("PrepareForShutdown"),
			}, nil, shutdown)
		}
	}
}

// Held returns how many inhibitors are out.
func (l *Logind) InhibitorCount() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held
}

// Calls returns the calls so far, by method and arguments.
func (l *Logind) Calls() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.calls...)
}

func (l *Logind) accept() {
	for {
		conn, err := l.listener.AcceptUnix()
		if err != nil {
			return
		}
		p := &peer{UnixConn: conn}
		l.mu.Lock()
		l.conns[p] = true
		if l.closed {
			_ = p.Close()
		}
		l.mu.Unlock()
		l.running.Go(func() {
			l.serve(p)
			_ = p.Close()
			l.mu.Lock()
			delete(l.conns, p)
			l.mu.Unlock()
		})
	}
}

func (l *Logind) serve(p *peer) {
	in := bufio.NewReader(p)
	if !authenticate(in, p) {
		return
	}
	for {
		msg, err := dbus.DecodeMessage(in)
		if err != nil {
			return
		}
		l.answer(p, msg)
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
		words := strings.Fields(line)
		answer := "ERROR"
		switch {
		case len(words) == 0:
		case words[0] == "BEGIN":
			return true
		case words[0] == "AUTH" && len(words) == 1:
			answer = "REJECTED EXTERNAL"
		case words[0] == "AUTH":
			answer = "DATA"
		case words[0] == "DATA":
			answer = "OK 0123456789abcdef0123456789abcdef"
		case words[0] == "NEGOTIATE_UNIX_FD":
			answer = "AGREE_UNIX_FD"
		}
		if _, err := fmt.Fprintf(p, "%s\r\n", answer); err != nil {
			return false
		}
	}
}

func (l *Logind) answer(p *peer, msg *dbus.Message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	method, _ := msg.Headers[dbus.FieldMember].Value().(string)
	l.calls = append(l.calls, strings.TrimSpace(method+" "+fmt.Sprintln(msg.Body...)))
	if l.mute[method] {
		return
	}
	reply := map[dbus.HeaderField]dbus.Variant{dbus.FieldReplySerial: dbus.MakeVariant(msg.Serial())}
	if l.deny[method] {
		reply[dbus.FieldErrorName] = dbus.MakeVariant("org.freedesktop.DBus.Error.AccessDenied")
		p.send(dbus.TypeError, reply, nil, "Permission denied")
		return
	}
	switch method {
	case "Hello":
		p.send(dbus.TypeMethodReply, reply, nil, ":1.1")
	case "AddMatch":
		p.matches = true
		p.send(dbus.TypeMethodReply, reply, nil)
	case "Get":
		p.send(dbus.TypeMethodReply, reply, nil, l.propertyLocked(msg))
	case "Inhibit":
		l.inhibitLocked(p, reply)
	case "KillUnit":
		l.reloadLocked()
		p.send(dbus.TypeMethodReply, reply, nil)
	default:
		reply[dbus.FieldErrorName] = dbus.MakeVariant("org.freedesktop.DBus.Error.UnknownMethod")
		p.send(dbus.TypeError, reply, nil, "Unknown method "+method)
	}
}

func (l *Logind) propertyLocked(msg *dbus.Message) dbus.Variant {
	if len(msg.Body) == 2 && msg.Body[1] == "InhibitDelayMaxUSec" {
		return dbus.MakeVariant(uint64(l.delay / time.Microsecond))
	}
	return dbus.MakeVariant(l.shutdown)
}

// inhibitLocked hands out one end of a pipe, and waits for its end.
func (l *Logind) inhibitLocked(p *peer, reply map[dbus.HeaderField]dbus.Variant) {
	if l.shutdown {
		reply[dbus.FieldErrorName] = dbus.MakeVariant("org.freedesktop.login1.OperationInProgress")
		p.send(dbus.TypeError, reply, nil, "The operation inhibition has been requested for is already running")
		return
	}
	ours, theirs, err := os.Pipe()
	if err != nil {
		reply[dbus.FieldErrorName] = dbus.MakeVariant("org.freedesktop.DBus.Error.Failed")
		p.send(dbus.TypeError, reply, nil, err.Error())
		return
	}
	l.held++
	l.locks = append(l.locks, ours)
	l.running.Go(func() {
		_, _ = ours.Read(make([]byte, 1)) // until the last writer is gone
		_ = ours.Close()
		l.mu.Lock()
		defer l.mu.Unlock()
		l.held--
	})
	p.send(dbus.TypeMethodReply, reply, []int{int(theirs.Fd())}, dbus.UnixFDIndex(0))
	_ = theirs.Close()
}

// reloadLocked takes InhibitDelayMaxSec from the last file that has it.
func (l *Logind) reloadLocked() {
	files, _ := filepath.Glob(filepath.Join(l.ConfigDir, "*.conf"))
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil || l.ConfigDir == "" {
			continue
		}
		for line := range strings.Lines(string(text)) {
			if value, found := strings.CutPrefix(strings.TrimSpace(line), "InhibitDelayMaxSec="); found {
				if seconds, err := strconv.Atoi(value); err == nil {
					l.delay = time.Duration(seconds) * time.Second
				}
			}
		}
	}
}

// send sends a message with file descriptors. The server's lock is held.
func (p *peer) send(kind dbus.Type, headers map[dbus.HeaderField]dbus.Variant, fds []int, body ...any) {
	headers[dbus.FieldSender] = dbus.MakeVariant(":1.0")
	if len(body) > 0 {
		headers[dbus.FieldSignature] = dbus.MakeVariant(dbus.SignatureOf(body...))
	}
	var rights []byte
	if len(fds) > 0 {
		headers[dbus.FieldUnixFDs] = dbus.MakeVariant(uint32(len(fds)))
		rights = syscall.UnixRights(fds...)
	}
	var out bytes.Buffer
	msg := &dbus.Message{Type: kind, Headers: headers, Body: body}
	if msg.EncodeTo(&out, binary.LittleEndian) == nil {
		_, _, _ = p.WriteMsgUnix(out.Bytes(), rights, nil)
	}
}
