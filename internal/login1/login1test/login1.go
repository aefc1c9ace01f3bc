// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package login1test is a fake systemd-logind for tests. It speaks D-Bus on a unix socket of its own, and passes file descriptors like logind.
//
// [Logind.Shutdown] starts a shutdown, and [Logind.CancelShutdown] cancels it. A reload reads InhibitDelayMaxSec from a directory of the test.
//
// It does not implement users, seats, sessions, blocking inhibitors, permissions of callers, and the end of a shutdown's delay after
// InhibitDelayMaxSec: tests check [Logind.InhibitorCount] instead.
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

// Logind is a fake systemd-logind with its own message bus.
type Logind struct {
	// ConfigDir is the directory from which a reload reads InhibitDelayMaxSec. Empty: a reload changes nothing.
	ConfigDir string

	listener *net.UnixListener
	running  sync.WaitGroup

	mu         sync.Mutex // guards the fields below
	conns      map[*peer]bool
	shutdown   bool
	delay      time.Duration
	inhibitors int
	pipes      []*os.File // read ends of the inhibitor pipes
	calls      []string
	denied     map[string]bool
	silent     map[string]bool
	closed     bool
}

// peer is a client connection.
type peer struct {
	*net.UnixConn
	subscribed bool
}

// Start starts a Logind on a new unix socket at the path socket. The caller must call [Logind.Close].
func Start(socket string) (*Logind, error) {
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l := &Logind{listener: listener, conns: map[*peer]bool{}, delay: 5 * time.Second, denied: map[string]bool{}, silent: map[string]bool{}}
	l.running.Go(l.acceptConnections)
	return l, nil
}

// Close closes all connections, and waits until all goroutines of l have returned.
func (l *Logind) Close() {
	l.mu.Lock()
	l.closed = true
	for _, lock := range l.pipes {
		_ = lock.Close()
	}
	l.mu.Unlock()
	_ = l.listener.Close()
	l.CloseConnections()
	l.running.Wait()
}

// CloseConnections closes all connections, like a restart of the message bus. Inhibitors remain in effect.
func (l *Logind) CloseConnections() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for p := range l.conns {
		_ = p.Close()
	}
}

// SetDenied sets whether calls of method fail with the D-Bus error AccessDenied.
func (l *Logind) SetDenied(method string, deny bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.denied[method] = deny
}

// SetSilent sets whether calls of method get no reply.
func (l *Logind) SetSilent(method string, mute bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.silent[method] = mute
}

// SetDelay sets the property InhibitDelayMaxUSec, the maximum delay of a shutdown.
func (l *Logind) SetDelay(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.delay = d
}

// Shutdown simulates the start of a shutdown: the property PreparingForShutdown becomes true, and clients get the signal
// PrepareForShutdown.
func (l *Logind) Shutdown() { l.setShutdown(true) }

// CancelShutdown ends the simulated shutdown: the property PreparingForShutdown becomes false, and clients get the signal
// PrepareForShutdown with the argument false.
func (l *Logind) CancelShutdown() { l.setShutdown(false) }

func (l *Logind) setShutdown(shutdown bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.shutdown = shutdown
	l.signalLocked(shutdown)
}

// SendSignal sends the signal PrepareForShutdown without changing the property PreparingForShutdown, as any program on a
// real bus can do. shutdown is the argument of the signal.
func (l *Logind) SendSignal(shutdown bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.signalLocked(shutdown)
}

func (l *Logind) signalLocked(shutdown bool) {
	for p := range l.conns {
		if p.subscribed {
			p.sendMessage(dbus.TypeSignal, map[dbus.HeaderField]dbus.Variant{
				dbus.FieldPath: dbus.MakeVariant(dbus.ObjectPath(path)), dbus.FieldInterface: dbus.MakeVariant(manager),
				dbus.FieldMember: dbus.MakeVariant("PrepareForShutdown"),
			}, nil, shutdown)
		}
	}
}

// InhibitorCount returns the number of inhibitors that clients have taken and not closed.
func (l *Logind) InhibitorCount() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.inhibitors
}

// Calls returns one text for each call so far, which contains the method and the arguments.
func (l *Logind) Calls() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.calls...)
}

func (l *Logind) acceptConnections() {
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
			l.serveConnection(p)
			_ = p.Close()
			l.mu.Lock()
			delete(l.conns, p)
			l.mu.Unlock()
		})
	}
}

func (l *Logind) serveConnection(p *peer) {
	in := bufio.NewReader(p)
	if !authenticate(in, p) {
		return
	}
	for {
		msg, err := dbus.DecodeMessage(in)
		if err != nil {
			return
		}
		l.handleCall(p, msg)
	}
}

// authenticate serves the SASL mechanism EXTERNAL for every user. It returns false if the connection fails.
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

func (l *Logind) handleCall(p *peer, msg *dbus.Message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	method, _ := msg.Headers[dbus.FieldMember].Value().(string)
	l.calls = append(l.calls, strings.TrimSpace(method+" "+fmt.Sprintln(msg.Body...)))
	if l.silent[method] {
		return
	}
	reply := map[dbus.HeaderField]dbus.Variant{dbus.FieldReplySerial: dbus.MakeVariant(msg.Serial())}
	if l.denied[method] {
		reply[dbus.FieldErrorName] = dbus.MakeVariant("org.freedesktop.DBus.Error.AccessDenied")
		p.sendMessage(dbus.TypeError, reply, nil, "Permission denied")
		return
	}
	switch method {
	case "Hello":
		p.sendMessage(dbus.TypeMethodReply, reply, nil, ":1.1")
	case "AddMatch":
		p.subscribed = true
		p.sendMessage(dbus.TypeMethodReply, reply, nil)
	case "Get":
		p.sendMessage(dbus.TypeMethodReply, reply, nil, l.propertyLocked(msg))
	case "Inhibit":
		l.inhibitLocked(p, reply)
	case "KillUnit":
		l.reloadLocked()
		p.sendMessage(dbus.TypeMethodReply, reply, nil)
	default:
		reply[dbus.FieldErrorName] = dbus.MakeVariant("org.freedesktop.DBus.Error.UnknownMethod")
		p.sendMessage(dbus.TypeError, reply, nil, "Unknown method "+method)
	}
}

func (l *Logind) propertyLocked(msg *dbus.Message) dbus.Variant {
	if len(msg.Body) == 2 && msg.Body[1] == "InhibitDelayMaxUSec" {
		return dbus.MakeVariant(uint64(l.delay / time.Microsecond))
	}
	return dbus.MakeVariant(l.shutdown)
}

// inhibitLocked replies to a call of Inhibit with the write end of a pipe, whose closing ends the inhibitor. The caller
// holds l.mu.
func (l *Logind) inhibitLocked(p *peer, reply map[dbus.HeaderField]dbus.Variant) {
	if l.shutdown {
		reply[dbus.FieldErrorName] = dbus.MakeVariant("org.freedesktop.login1.OperationInProgress")
		p.sendMessage(dbus.TypeError, reply, nil, "The operation inhibition has been requested for is already running")
		return
	}
	ours, theirs, err := os.Pipe()
	if err != nil {
		reply[dbus.FieldErrorName] = dbus.MakeVariant("org.freedesktop.DBus.Error.Failed")
		p.sendMessage(dbus.TypeError, reply, nil, err.Error())
		return
	}
	l.inhibitors++
	l.pipes = append(l.pipes, ours)
	l.running.Go(func() {
		_, _ = ours.Read(make([]byte, 1)) // until the last writer has closed the pipe
		_ = ours.Close()
		l.mu.Lock()
		defer l.mu.Unlock()
		l.inhibitors--
	})
	p.sendMessage(dbus.TypeMethodReply, reply, []int{int(theirs.Fd())}, dbus.UnixFDIndex(0))
	_ = theirs.Close()
}

// reloadLocked reads the files in ConfigDir. It sets l.delay to InhibitDelayMaxSec of the last file that has this setting.
// The caller holds l.mu.
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

// sendMessage sends a D-Bus message of the given type, with the file descriptors fds, to the client. The caller holds
// Logind.mu.
func (p *peer) sendMessage(kind dbus.Type, headers map[dbus.HeaderField]dbus.Variant, fds []int, body ...any) {
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
