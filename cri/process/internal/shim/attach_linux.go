// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package shim

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed81659283/nodeagent/cri/process/internal/procfs"
)

const (
	// maxClients is the maximum number of attached clients.
	maxClients = 100
	// replyTimeout limits the time that a client takes to read a reply.
	replyTimeout = 5 * time.Second
	// inputEnded is the byte that a client sends when it sends no more input.
	inputEnded = 'e'
	// resultTaken is the byte that a client sends after it has received the result of its command.
	resultTaken = 't'
)

var errBehind = errors.New("the client does not read the output of the container and was disconnected")

// outputHub copies the output of the process to the attached clients. It never waits for a client.
type outputHub struct {
	mu      sync.Mutex // guards the fields below
	clients map[*client]bool
	closed  bool
	serving sync.WaitGroup // attach requests in progress
}

// client is an attached client.
type client struct {
	fds     map[string]int // non-blocking descriptors to write to, by stream
	dropped chan error     // receives the reason once when the client is dropped
}

// addClient adds a client to which output is copied, and whose descriptors the hub closes. After the exit it returns ErrEnded.
func (h *outputHub) addClient(attached *client) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return ErrEnded
	}
	if len(h.clients) >= maxClients {
		return fmt.Errorf("%d clients are attached to the container, which is the most", maxClients)
	}
	if h.clients == nil {
		h.clients = make(map[*client]bool)
	}
	h.clients[attached] = true
	h.serving.Add(1)
	return nil
}

// writeOutput writes output of the process to every client that receives this stream.
func (h *outputHub) writeOutput(stream string, data []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for c := range h.clients {
		fd, ok := c.fds[stream]
		if !ok {
			continue
		}
		n, err := unix.Write(fd, data)
		for errors.Is(err, unix.EINTR) {
			n, err = unix.Write(fd, data)
		}
		switch {
		case errors.Is(err, unix.EPIPE):
			_ = unix.Close(fd) // the client has closed this stream
			delete(c.fds, stream)
		case err != nil || n < len(data):
			// its pipe is full, and its output would have a gap
			h.dropClient(c, errBehind)
		}
	}
}

// removeClient removes a client that has disconnected. It does nothing if the client was dropped before.
func (h *outputHub) removeClient(attached *client) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.clients[attached] {
		h.dropClient(attached, nil)
	}
}

// dropClient removes a client from the hub, closes its descriptors, and sends the reason to its goroutine. The caller holds mu.
func (h *outputHub) dropClient(attached *client, reason error) {
	delete(h.clients, attached)
	closeAll(slices.Collect(maps.Values(attached.fds)))
	attached.dropped <- reason
}

// closeClients drops all clients after the process has exited. It waits until they are notified, but no longer than limit.
func (h *outputHub) closeClients(limit time.Duration) {
	h.mu.Lock()
	h.closed = true
	for c := range h.clients {
		h.dropClient(c, nil)
	}
	h.mu.Unlock()
	told := make(chan struct{})
	go func() { h.serving.Wait(); close(told) }()
	select {
	case <-told:
	case <-time.After(limit):
	}
}

// attachClient copies the output of the process to a client until the client leaves or the process exits. Once the hub owns the
// descriptors, *fds is nil.
func (k *shimServer) attachClient(conn *net.UnixConn, req request, fds *[]int) error {
	c, err := newClient(req, *fds)
	if err != nil {
		return err
	}
	if err := k.hub.addClient(c); err != nil {
		return err
	}
	*fds = nil // the hub owns them
	_ = conn.SetWriteDeadline(time.Now().Add(replyTimeout))
	answer := reply{Version: protocol, Input: req.Stdin && k.spec.Stdin, TTY: k.spec.TTY, Once: k.spec.StdinOnce}
	if answer.Input || req.Terminal && k.spec.TTY {
		err = k.input.lendFD(func(fds []int) error { return writeMessage(conn, answer, fds) })
	} else {
		err = writeMessage(conn, answer, nil)
	}
	_ = conn.SetWriteDeadline(time.Time{})
	if err != nil {
		k.hub.removeClient(c)
		k.hub.serving.Done()
		return err
	}
	go func() {
		event := make([]byte, 1)
		for {
			_, err := conn.Read(event)
			if req.Stdin && (err != nil || event[0] == inputEnded) {
				k.input.closeAfterFirst()
			}
			if err != nil {
				k.hub.removeClient(c)
				return
			}
		}
	}()
	err = <-c.dropped
	// Sent here, because the shim may exit as soon as its clients are notified.
	answer = reply{Version: protocol}
	if err != nil {
		answer.Error = err.Error()
	}
	_ = conn.SetWriteDeadline(time.Now().Add(replyTimeout))
	_ = writeMessage(conn, answer, nil)
	k.hub.serving.Done()
	return err
}

// newClient returns the client of an attach request. fds contains the descriptors sent with the request: one for each
// requested stream.
func newClient(req request, fds []int) (*client, error) {
	c := &client{fds: make(map[string]int), dropped: make(chan error, 1)}
	var wanted []string
	if req.Stdout {
		wanted = append(wanted, stdout)
	}
	if req.Stderr {
		wanted = append(wanted, stderr)
	}
	if len(fds) != len(wanted) {
		return nil, fmt.Errorf("attach wants %d descriptors, not %d", len(wanted), len(fds))
	}
	for i, stream := range wanted {
		if err := unix.SetNonblock(fds[i], true); err != nil {
			return nil, os.NewSyscallError("fcntl", err)
		}
		c.fds[stream] = fds[i]
	}
	return c, nil
}

// runSessionCommand runs the command of a request with the client's descriptors as its streams, and returns its exit code.
func (k *shimServer) runSessionCommand(conn net.Conn, req request, fds *[]int) (int, error) {
	want := 3
	if req.TTY {
		want = 1
	}
	if len(*fds) != want || len(req.Argv) == 0 {
		return 0, fmt.Errorf("run wants a command and %d descriptors, not %d", want, len(*fds))
	}
	mark := fmt.Sprint("NODEAGENT_EXEC_ID=", k.sessions.Add(1))
	env := []string{mark}
	files := stdio{in: (*fds)[0], out: (*fds)[want/2], err: (*fds)[want-1], tty: req.TTY}
	if req.TTY {
		if !slices.ContainsFunc(k.spec.Env, isTerm) {
			env = append(env, "TERM=xterm")
		}
		if u := k.spec.User; u != nil {
			if err := unix.Fchown(files.in, int(u.UID), -1); err != nil {
				return 0, fmt.Errorf("give terminal to user %d: %w", u.UID, err)
			}
		}
	}
	pid, status, err := k.forkExec(req.Argv, files, env)
	if err != nil {
		return 0, err
	}
	// when the client disconnects, also the processes that the command has started
	kill := func() { k.killMarked(pid, mark) }
	code, err := k.awaitCommand(conn, status, fds, kill)
	if err == nil && !sendResult(conn, code) {
		kill() // its client caused the exit, by SIGHUP or SIGPIPE
	}
	return code, err
}

// sendResult sends the exit code of a command to the client, which confirms the reception. It returns false if the client
// disconnects without a confirmation.
func sendResult(conn net.Conn, code int) bool {
	_ = conn.SetDeadline(time.Now().Add(replyTimeout))
	if json.NewEncoder(conn).Encode(reply{Version: protocol, Code: code}) != nil {
		return false
	}
	_, err := conn.Read(make([]byte, 1))
	return err == nil || errors.Is(err, os.ErrDeadlineExceeded) // the client is slow or stopped
}

func isTerm(entry string) bool { return strings.HasPrefix(entry, "TERM=") }

// killMarked kills the command with this PID, and all descendants of the shim that have the entry mark in their environment,
// until none is left.
func (k *shimServer) killMarked(pid int, mark string) {
	k.killExec(pid)
	clean := 0
	for deadline := time.Now().Add(killTimeout); clean < 2 && time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		all, err := procfs.ListProcesses()
		if err != nil {
			fmt.Fprintln(os.Stderr, "kill session:", err)
			continue
		}
		clean++
		// a process escapes only if it has removed the mark and is no descendant of the command
		for _, p := range procfs.NewTree(all).Descendants(os.Getpid()) {
			if !p.Zombie && procfs.HasEnv(p.PID, mark) {
				clean = 0
				_ = procfs.Kill(p)
			}
		}
	}
}
