// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

const (
	upTimeout   = 3 * time.Minute  // for all of Up; it takes about a second
	stopGrace   = 10 * time.Second // of containerd and the registry
	logTailSize = 4 << 10
)

// Up starts the lab of that name under home, or returns the one that runs and answers. What an earlier lab of
// that name left behind is removed first.
func Up(ctx context.Context, home, name string) (*Lab, error) {
	return up(ctx, home, name, false)
}

func up(ctx context.Context, home, name string, onDemand bool) (*Lab, error) {
	if reason := unsupported(); reason != "" {
		return nil, errors.New(reason)
	}
	if err := Built(home); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, upTimeout)
	defer cancel()
	lock, err := lockHome(ctx, home)
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	if l, err := Open(home, name); err == nil {
		err := l.awaitReady(ctx)
		if err == nil && l.rec.OnDemand && !onDemand { // asked for by name now: it stays until Down
			l.rec.OnDemand = false
			return l, l.save()
		}
		if err == nil || ctx.Err() != nil { // slow is not broken: others may be using it
			return l, err
		}
	}
	l := newLab(home, name)
	if err := l.clear(ctx); err != nil {
		return nil, fmt.Errorf("clear lab %s: %w", name, err)
	}
	l.rec.OnDemand = onDemand
	if err := l.start(ctx); err != nil {
		err = fmt.Errorf("start lab %s: %w%s", name, err, l.logTail())
		return nil, errors.Join(err, l.clear(context.WithoutCancel(ctx)))
	}
	return l, nil
}

// Built returns an error that names what `make lab` has not made under home.
func Built(home string) error {
	for _, path := range []string{
		"bin/containerd", "bin/containerd-shim-runc-v2", "bin/ctr", "bin/runc", "bin/crane",
		"bin/lab", "bin/bridge", "bin/host-local", "bin/loopback", "bin/portmap",
		"images/busybox.tar", "images/pause.tar",
	} {
		if _, err := os.Stat(filepath.Join(home, path)); err != nil {
			return fmt.Errorf("%s is missing: run `make lab` once as root", filepath.Join(home, path))
		}
	}
	return nil
}

// lockHome serialises all that starts or stops a lab under home.
func lockHome(ctx context.Context, home string) (*os.File, error) {
	return acquire(ctx, filepath.Join(home, "lock"), false)
}

// start makes a lab where there is nothing.
func (l *Lab) start(ctx context.Context) error {
	for _, dir := range []string{l.Dir(), filepath.Join(l.Dir(), "tmp"), l.registryDir(), l.StateDir()} {
		if err := os.MkdirAll(dir, 0o711); err != nil {
			return err
		}
	}
	if err := l.configure(); err != nil {
		return err
	}
	var err error
	l.rec.Registry, err = spawn(l.registryLog(), l.Dir(), l.bin("crane"), "registry", "serve",
		"--address", "127.0.0.1:0", "--disk", l.registryDir())
	if err != nil {
		return err
	}
	if err := l.startContainerd(ctx); err != nil {
		return err
	}
	if err := l.awaitRegistry(ctx); err != nil {
		return err
	}
	if err := l.loadImages(ctx); err != nil {
		return err
	}
	if err := l.save(); err != nil || !l.rec.OnDemand {
		return err
	}
	_, err = spawn(filepath.Join(l.home, "watch.log"), l.home, l.bin("lab"), "watch", l.rec.Name)
	return err
}

func (l *Lab) configure() error {
	used, err := net.InterfaceAddrs()
	if err != nil {
		return err
	}
	subnet, err := pickSubnet(l.rec.ID, used)
	if err != nil {
		return err
	}
	l.rec.Subnet = subnet.String()
	if l.rec.Snapshotter, err = pickSnapshotter(l.Dir()); err != nil {
		return err
	}
	mayLower, err := mayLowerOOMScore()
	if err != nil {
		return err
	}
	_, err = exec.LookPath("iptables")
	return l.writeConfig(!mayLower, err == nil)
}

// startContainerd starts containerd and waits until its CRI answers. The process id is saved in between, for
// those who look at a lab that is still starting.
func (l *Lab) startContainerd(ctx context.Context) error {
	p, err := spawn(l.LogPath(), l.Dir(), l.bin("containerd"), "--config", l.configPath())
	if err != nil {
		return err
	}
	l.rec.Containerd = p
	if err := l.save(); err != nil {
		return err
	}
	return l.awaitReady(ctx)
}

// awaitReady waits until the CRI answers. It fails at once when containerd does not run, and not before the end
// of ctx when it is only slow: a busy lab must not be taken for a broken one.
func (l *Lab) awaitReady(ctx context.Context) error {
	for {
		err := l.Ready(ctx)
		if err == nil {
			return nil
		}
		if !l.rec.Containerd.alive() {
			reap(l.rec.Containerd.PID)
			return err
		}
		if pause(ctx, poll) != nil {
			return fmt.Errorf("wait for containerd: %w", err)
		}
	}
}

// Ready returns nil if containerd runs and its CRI answers.
func (l *Lab) Ready(ctx context.Context) error {
	if !l.rec.Containerd.alive() {
		return errors.New("containerd does not run")
	}
	c := l.client()
	defer c.close()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	_, err := c.call(ctx, "Version")
	return err
}

// awaitRegistry reads the port that the registry chose from its log.
func (l *Lab) awaitRegistry(ctx context.Context) error {
	for {
		b, err := os.ReadFile(l.registryLog())
		if err != nil {
			return err
		}
		if _, rest, ok := strings.Cut(string(b), "serving on port "); ok && strings.Contains(rest, "\n") {
			port, _, _ := strings.Cut(rest, "\n")
			l.rec.RegistryHost = net.JoinHostPort("127.0.0.1", port)
			return nil
		}
		if !l.rec.Registry.alive() {
			return fmt.Errorf("the registry ended at once: %s", b)
		}
		if err := pause(ctx, poll); err != nil {
			return fmt.Errorf("wait for the registry: %w", err)
		}
	}
}

// loadImages gives both images to containerd, and busybox to the registry as well.
func (l *Lab) loadImages(ctx context.Context) error {
	if err := l.Import(ctx, "pause", "busybox"); err != nil {
		return err
	}
	// The flag makes crane use HTTP; its answer is the name with the digest.
	pushed, err := l.output(ctx, "crane", "push", "--insecure", l.imagePath("busybox"), l.RegistryImage())
	if err != nil {
		return err
	}
	l.rec.RegistryDigest = strings.TrimSpace(pushed)
	return nil
}

// Import loads images into containerd, by the names of their archives in .lab/images.
func (l *Lab) Import(ctx context.Context, names ...string) error {
	for _, name := range names {
		_, err := l.output(ctx, "ctr", "--address", l.socket(), "--namespace", "k8s.io",
			"images", "import", "--local", "--snapshotter", l.rec.Snapshotter, l.imagePath(name))
		if err != nil {
			return err
		}
	}
	return nil
}

func (l *Lab) output(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, l.bin(name), args...)
	cmd.WaitDelay = time.Second
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("run %s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return string(out), nil
}

func (l *Lab) imagePath(name string) string { return filepath.Join(l.home, "images", name+".tar") }

func (l *Lab) registryLog() string { return filepath.Join(l.Dir(), "registry.log") }

func (l *Lab) registryDir() string { return filepath.Join(l.Dir(), "registry") }

// logTail returns the end of containerd's log, to be read below an error.
func (l *Lab) logTail() string {
	b, err := os.ReadFile(l.LogPath())
	if errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	if err != nil {
		return "\n" + err.Error()
	}
	return fmt.Sprintf("\nend of %s:\n%s", l.LogPath(), b[max(0, len(b)-logTailSize):])
}

// Kill ends containerd the hard way, as a crash would. Pods go on under their shims. A test does this to a private
// lab only: others are at work in the shared one.
func (l *Lab) Kill(ctx context.Context) error { return l.rec.Containerd.kill(ctx) }

// Restart kills containerd if it runs, starts it again on the same state and waits until it answers. Pods are
// left as they are.
func (l *Lab) Restart(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, upTimeout)
	defer cancel()
	lock, err := lockHome(ctx, l.home)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := l.Kill(ctx); err != nil {
		return err
	}
	if err := l.startContainerd(ctx); err != nil {
		return fmt.Errorf("restart lab %s: %w%s", l.rec.Name, err, l.logTail())
	}
	return nil
}
