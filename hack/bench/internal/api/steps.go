// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package api

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed81659283/nodeagent/hack/bench/internal/stat"
	"github.com/seed81659283/nodeagent/hack/bench/internal/wait"
	"github.com/seed81659283/nodeagent/internal/streaming/streamtest"
)

// spdy is the protocol that runtime, agent and kubelet all support.
const spdy = "SPDY v4.channel.k8s.io"

const (
	mib = 1 << 20
	gib = 1 << 30
)

// rest measures the CPU time of an agent without requests.
func (t *trial) rest(ctx context.Context) error {
	_, cpu, err := t.spent(func() error { return wait.Sleep(ctx, t.options.rest) })
	t.atRest = cpu / t.options.rest.Seconds()
	t.figures.add(restMillicores, 1000*t.atRest)
	return err
}

// spent returns the wall time of do in seconds, and the CPU seconds of the agent beyond its CPU time at rest.
func (t *trial) spent(do func() error) (wall, cpu float64, err error) {
	before, err := t.CPU()
	if err != nil {
		return 0, 0, err
	}
	began := time.Now()
	err = do()
	wall = time.Since(began).Seconds()
	after, cpuErr := t.CPU()
	return wall, (after - before).Seconds() - t.atRest*wall, errors.Join(err, cpuErr)
}

// A line of the log has lineHead in the file, and then 100 bytes and a newline, which a client receives.
const (
	lineHead = "2026-01-02T03:04:05.123456789Z stdout F "
	lineSize = 101
)

// writeLog appends lines of about size bytes to a file. It returns the bytes of the file and the bytes that a client
// receives.
func writeLog(file string, size int) (written, content int64, err error) {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return 0, 0, err
	}
	w := bufio.NewWriterSize(f, mib)
	line := lineHead + strings.Repeat("x", lineSize-1) + "\n"
	n := int64(max(1, size/len(line)))
	for range n {
		_, _ = w.WriteString(line) // Flush returns the first error
	}
	return n * int64(len(line)), n * lineSize, errors.Join(w.Flush(), f.Close())
}

// logs reads the whole log, which is in the page cache after writing.
func (t *trial) logs(ctx context.Context) error {
	written, content, err := writeLog(t.bare.file, t.log*mib)
	if err != nil {
		return err
	}
	wall, _, err := t.spent(func() error { return drain(ctx, t.bare.log, written) })
	t.floor.add(logSpeed, float64(written)/mib/wall)
	if err != nil {
		return err
	}
	wall, cpu, err := t.spent(func() error { return drain(ctx, t.served.log, content) })
	t.figures.add(logSpeed, float64(written)/mib/wall)
	t.figures.add(logCPU, cpu*gib/float64(written))
	return err
}

// counter is a writer that counts bytes.
type counter struct{ n int64 }

func (c *counter) Write(b []byte) (int, error) {
	c.n += int64(len(b))
	return len(b), nil
}

// drain reads everything, and returns an error if the size is not want: an incomplete response would be faster.
func drain(ctx context.Context, open func(context.Context) (io.ReadCloser, error), want int64) error {
	r, err := open(ctx)
	if err != nil {
		return err
	}
	defer r.Close()
	var c counter
	if _, err := io.Copy(&c, r); err != nil {
		return err
	}
	if c.n != want {
		return fmt.Errorf("%d bytes came of %d", c.n, want)
	}
	return nil
}

// succeeded returns an error unless the status of a session reports exit code 0.
func succeeded(status string, err error) error {
	if err == nil && !strings.Contains(status, `"status":"Success"`) {
		err = fmt.Errorf("the session has status %q", status)
	}
	return err
}

// execTrue returns the seconds of one exec of the program true.
func execTrue(ctx context.Context, w way) (float64, error) {
	ctx, end := context.WithTimeout(ctx, time.Minute)
	defer end()
	began := time.Now()
	url, err := w.exec(ctx, false, "true")
	if err == nil {
		err = succeeded(streamtest.Command{URL: url, Protocol: spdy, Stdout: &counter{}}.Run(ctx))
	}
	return time.Since(began).Seconds(), err
}

// execTrueTimes returns the seconds of each of n execs, with up to parallel at a time. After an error it starts no more.
func execTrueTimes(ctx context.Context, w way, n, parallel int) ([]float64, error) {
	var next atomic.Int64
	took, errs := make([]float64, n), make([]error, parallel)
	ctx, end := context.WithCancel(ctx)
	defer end()
	var workers sync.WaitGroup
	for worker := range errs {
		workers.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				if took[i], errs[worker] = execTrue(ctx, w); errs[worker] != nil {
					end()
					return
				}
			}
		})
	}
	workers.Wait()
	return took, errors.Join(errs...)
}

// turns is the number of alternations between floor and agent during the execs, so that both see the same load of the
// machine.
const turns = 8

func (t *trial) execs(ctx context.Context) error {
	for _, one := range []struct {
		parallel      int
		p50, p99, cpu metric
	}{{1, execP50, execP99, execCPU}, {t.parallel, manyP50, manyP99, manyCPU}} {
		n := max(t.options.execs/turns, one.parallel)
		var floor, agent []float64
		var spent float64
		for range turns {
			took, err := execTrueTimes(ctx, t.bare, n, one.parallel)
			if err != nil {
				return fmt.Errorf("floor: %w", err)
			}
			floor = append(floor, took...)
			_, cpu, err := t.spent(func() error {
				took, err = execTrueTimes(ctx, t.served, n, one.parallel)
				return err
			})
			if err != nil {
				return err
			}
			agent = append(agent, took...)
			spent += cpu
		}
		t.floor.add(one.p50, 1000*stat.Quantile(floor, 0.5))
		t.floor.add(one.p99, 1000*stat.Quantile(floor, 0.99))
		t.figures.add(one.p50, 1000*stat.Quantile(agent, 0.5))
		t.figures.add(one.p99, 1000*stat.Quantile(agent, 0.99))
		t.figures.add(one.cpu, 1000*spent/float64(len(agent)))
	}
	return nil
}

// forward measures a port-forward connection to which a server of the harness sends.
func (t *trial) forward(ctx context.Context) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	size := int64(t.log) * mib
	var server sync.WaitGroup
	server.Go(func() {
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			_, _ = io.CopyN(c, zeros{}, size) // the reader detects that bytes are missing
			_ = c.Close()
		}
	})
	defer server.Wait()
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	return t.bulk(size, forwardSpeed, forwardTLS, forwardCPU, func(w way) error { return drainForward(ctx, w, port, size, t.limit) })
}

// output measures a command that writes to its session.
func (t *trial) output(ctx context.Context) error {
	size := int64(t.log) * mib
	return t.bulk(size, outputSpeed, outputTLS, outputCPU, func(w way) error { return drainOutput(ctx, w, size, t.limit) })
}

// bulk measures a session that carries size bytes: at the runtime, at the runtime through a proxy with TLS, and at the agent.
func (t *trial) bulk(size int64, plain, withTLS, cpuTime metric, carry func(way) error) error {
	mibs := float64(size) / mib
	began := time.Now()
	if err := carry(t.bare); err != nil {
		return fmt.Errorf("floor: %w", err)
	}
	t.floor.add(plain, mibs/time.Since(began).Seconds())
	proxied, err := newEncrypted(t.bare)
	if err != nil {
		return err
	}
	began = time.Now()
	err = carry(proxied)
	t.floor.add(withTLS, mibs/time.Since(began).Seconds())
	if err = errors.Join(err, proxied.Close()); err != nil {
		return fmt.Errorf("floor with TLS: %w", err)
	}
	wall, cpu, err := t.spent(func() error { return carry(t.served) })
	t.figures.add(plain, mibs/wall)
	t.figures.add(withTLS, mibs/wall)
	t.figures.add(cpuTime, cpu*gib/float64(size))
	return err
}

// drainOutput reads all output of a command.
func drainOutput(ctx context.Context, w way, size int64, limit time.Duration) error {
	ctx, end := context.WithTimeout(ctx, limit)
	defer end()
	url, err := w.exec(ctx, false, "dd", "if=/dev/zero", "bs=65536", "count="+strconv.FormatInt(size/(64<<10), 10))
	if err != nil {
		return err
	}
	var c counter
	if err := succeeded(streamtest.Command{URL: url, Protocol: spdy, Stdout: &c}.Run(ctx)); err != nil {
		return err
	}
	if c.n != size {
		return fmt.Errorf("%d bytes came of %d", c.n, size)
	}
	return nil
}

// zeros is an endless reader of zero bytes.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

// drainForward reads all data, but does not wait for the end: containerd waits a second for the other direction before it passes
// the end on.
func drainForward(ctx context.Context, w way, port int, size int64, limit time.Duration) error {
	ctx, end := context.WithTimeout(ctx, limit)
	defer end()
	url, err := w.forward(ctx)
	if err != nil {
		return err
	}
	f, err := streamtest.Forward(ctx, url, false)
	if err != nil {
		return err
	}
	closing := sync.OnceFunc(f.Close)
	defer closing()
	defer context.AfterFunc(ctx, closing)()
	c, err := f.Connect(ctx, port)
	if err != nil {
		return err
	}
	_, err = io.CopyN(&counter{}, c, size)
	return errors.Join(err, ctx.Err())
}

// scrape measures the mean CPU time of a request for each page.
func (t *trial) scrape(ctx context.Context) error {
	for _, page := range pages() {
		_, cpu, err := t.spent(func() error {
			for range t.scrapes {
				if err := t.read(ctx, page); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		t.figures.add(scrapeCPU(page), 1000*cpu/float64(t.scrapes))
	}
	return nil
}

// read reads a page completely.
func (t *trial) read(ctx context.Context, page string) error {
	r, err := t.served.get(ctx, page)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, r)
	if err = errors.Join(err, r.Close()); err != nil {
		return fmt.Errorf("GET %s: %w", page, err)
	}
	return nil
}

// idle measures the memory of sessions that have responded once and are idle.
func (t *trial) idle(ctx context.Context) (err error) {
	if err := wait.Sleep(ctx, t.settle); err != nil {
		return err
	}
	before, err := t.Resident()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var sessions sync.WaitGroup
	errs := make([]error, t.options.idle)
	var ends []io.Closer
	defer func() {
		for _, end := range ends {
			err = errors.Join(err, end.Close())
		}
		late := time.AfterFunc(t.limit, cancel)
		defer late.Stop()
		sessions.Wait()
		cancel()
		err = errors.Join(err, errors.Join(errs...))
	}()
	for i := range errs {
		url, err := t.served.exec(ctx, true, "cat")
		if err != nil {
			return err
		}
		stdin, in := io.Pipe()
		out, stdout := io.Pipe()
		ends = append(ends, in)
		sessions.Go(func() {
			errs[i] = succeeded(streamtest.Command{URL: url, Protocol: spdy, Stdin: stdin, Stdout: stdout}.Run(ctx))
			_ = stdin.CloseWithError(io.ErrClosedPipe) // a pipe's Close has no errors
			_ = stdout.Close()
		})
		if _, err := io.WriteString(in, "x"); err != nil {
			return fmt.Errorf("session %d: %w", i, err)
		}
		if _, err := io.ReadFull(out, make([]byte, 1)); err != nil {
			return fmt.Errorf("session %d: %w", i, err)
		}
	}
	if err := wait.Sleep(ctx, t.settle); err != nil {
		return err
	}
	after, err := t.Resident()
	t.figures.add(idleMiB, after-before)
	return err
}
