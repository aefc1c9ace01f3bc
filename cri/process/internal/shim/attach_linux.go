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
	// maxClients is how many clients may be attached at once.
	maxClients = 100
	// replyTime is how long a client may take to read an answer.
	replyTime = 5 * time.Second
	// inputEnded is what a client writes when it sends no more input.
	inputEnded = 'e'
	// resultTaken is what a client writes when it has got the result of its command.
	resultTaken = 't'
)

var errBehind = errors.New("the client does not read what the container writes, and has been left behind")

// hub passes the output of the process on to clients. It never waits for one.
type hub struct {
	mu      sync.Mutex // guards what follows
	clients map[*client]bool
	closed  bool
	serving sync.WaitGroup // attach requests
}

// client is one that is attached.
type client struct {
	fds map[string]int // descriptors that do not block, by stream
	end chan error     // gets why it is not attached any more, once
}

// add attaches a client, and takes its descriptors.
func (h *hub) add(c *client) error {
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
	h.clients[c] = true
	h.serving.Add(1)
	return nil
}

// write hands output to every client. One that has no room for all of it is dropped: what it gets has no gap.
func (h *hub) write(stream string, data []byte) {
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
			_ = unix.Close(fd) // it does not want this stream any more
			delete(c.fds, stream)
		case err != nil || n < len(data):
			h.drop(c, errBehind)
		}
	}
}

// remove drops a client that may have been dropped already.
func (h *hub) remove(c *client) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.clients[c] {
		h.drop(c, nil)
	}
}

// drop ends the streams of a client. The caller holds mu.
func (h *hub) drop(c *client, why error) {
	delete(h.clients, c)
	closeAll(slices.Collect(maps.Values(c.fds)))
	c.end <- why
}

// close drops all clients, as the process has ended, and waits for them to be told.
func (h *hub) close(limit time.Duration) {
	h.mu.Lock()
	h.closed = true
	for c := range h.clients {
		h.drop(c, nil)
	}
	h.mu.Unlock()
	told := make(chan struct{})
	go func() { h.serving.Wait(); close(told) }()
	select {
	case <-told:
	case <-time.After(limit):
	}
}

// attach passes output on to a client until it leaves, is dropped, or the process has ended.
func (k *keeper) attach(conn *net.UnixConn, r request, fds *[]int) error {
	c, err := newClient(r, *fds)
	if err != nil {
		return err
	}
	if err := k.hub.add(c); err != nil {
		return err
	}
	*fds = nil
	_ = conn.SetWriteDeadline(time.Now().Add(replyTime))
	answer := reply{Version: protocol, Input: r.Stdin && k.spec.Stdin, TTY: k.spec.TTY, Once: k.spec.StdinOnce}
	if answer.Input || r.Terminal && k.spec.TTY {
		err = k.input.share(func(fds []int) error { return writeWith(conn, answer, fds) })
	} else {
		err = writeWith(conn, answer, nil)
	}
	_ = conn.SetWriteDeadline(time.Time{})
	if err != nil {
		k.hub.remove(c)
		k.hub.serving.Done()
		return err
	}
	go func() {
		event := make([]byte, 1)
		for {
			_, err := conn.Read(event)
			if r.Stdin && (err != nil || event[0] == inputEnded) {
				k.input.left()
			}
			if err != nil {
				k.hub.remove(c)
				return
			}
		}
	}()
	err = <-c.end
	// Here, because the shim may end as soon as its clients are told.
	answer = reply{Version: protocol}
	if err != nil {
		answer.Error = err.Error()
	}
	_ = conn.SetWriteDeadline(time.Now().Add(replyTime))
	_ = writeWith(conn, answer, nil)
	k.hub.serving.Done()
	return err
}

// newClient makes a client of the descriptors that came with its request.
func newClient(r request, fds []int) (*client, error) {
	c := &client{fds: make(map[string]int), end: make(chan error, 1)}
	var wanted []string
	if r.Stdout {
		wanted = append(wanted, stdout)
	}
	if r.Stderr {
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

// run runs a command on the descriptors of a client, and kills it with all that it has started when the client leaves.
func (k *keeper) run(conn net.Conn, r request, fds *[]int) (int, error) {
	want := 3
	if r.TTY {
		want = 1
	}
	if len(*fds) != want || len(r.Argv) == 0 {
		return 0, fmt.Errorf("run wants a command and %d descriptors, not %d", want, len(*fds))
	}
	mark := fmt.Sprint("NODEAGENT_EXEC_ID=", k.sessions.Add(1))
	env := []string{mark}
	files := stdio{in: (*fds)[0], out: (*fds)[want/2], err: (*fds)[want-1], tty: r.TTY}
	if r.TTY {
		if !slices.ContainsFunc(k.spec.Env, isTerm) {
			env = append(env, "TERM=xterm")
		}
		if u := k.spec.User; u != nil {
			if err := unix.Fchown(files.in, int(u.UID), -1); err != nil {
				return 0, fmt.Errorf("give terminal to user %d: %w", u.UID, err)
			}
		}
	}
	pid, status, err := k.forkExec(r.Argv, files, env)
	if err != nil {
		return 0, err
	}
	kill := func() { k.killMarked(pid, mark) }
	code, err := k.await(conn, status, fds, kill)
	if err == nil && !taken(conn, code) {
		kill() // it ended because its client did, by a SIGHUP or SIGPIPE
	}
	return code, err
}

// taken tells a client how its command ended, and reports whether it took notice. A client that has gone does not.
func taken(conn net.Conn, code int) bool {
	_ = conn.SetDeadline(time.Now().Add(replyTime))
	if json.NewEncoder(conn).Encode(reply{Version: protocol, Code: code}) != nil {
		return false
	}
	_, err := conn.Read(make([]byte, 1))
	return err == nil || errors.Is(err, os.ErrDeadlineExceeded) // that one is slow, or stopped
}

func isTerm(entry string) bool { return strings.HasPrefix(entry, "TERM=") }

// killMarked kills a command and all that it has started, until there is nothing left. What has dropped the mark from its
// environment and left the command's tree belongs to the container.
func (k *keeper) killMarked(pid int, mark string) {
	k.killExec(pid)
	clean := 0
	for deadline := time.Now().Add(leftoverTime); clean < 2 && time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		all, err := procfs.All()
		if err != nil {
			fmt.Fprintln(os.Stderr, "kill session:", err)
			continue
		}
		clean++
		for _, p := range procfs.NewTree(all).Descendants(os.Getpid()) {
			if !p.Zombie && procfs.HasEnv(p.PID, mark) {
				clean = 0
				_ = procfs.Kill(p)
			}
		}
	}
}
