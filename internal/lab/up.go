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
	upTimeout   = 3 * time.Minute  // limits Up, which usually takes a second
	stopGrace   = 10 * time.Second // for containerd and the registry to exit
	logTailSize = 4 << 10          // bytes
)

// Up returns the lab called name in the .lab directory home, and starts it if it does not run. It removes the remains of an
// earlier lab with this name. The lab runs until [Lab.Down].
func Up(ctx context.Context, home, name string) (*Lab, error) {
	return startLab(ctx, home, name, false)
}

// startLab returns a lab, and starts it if necessary. With onDemand it runs until no process uses it, otherwise until
// [Lab.Down].
func startLab(ctx context.Context, home, name string, onDemand bool) (*Lab, error) {
	if reason := unsupportedReason(); reason != "" {
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
		if err == nil && l.record.OnDemand && !onDemand { // requested by name now: it runs until Down
			l.record.OnDemand = false
			return l, l.saveRecord()
		}
		if err == nil || ctx.Err() != nil { // a slow lab is not broken: other tests may use it
			return l, err
		}
	}
	l := newLab(home, name)
	if err := l.removeAll(ctx); err != nil {
		return nil, fmt.Errorf("clear lab %s: %w", name, err)
	}
	l.record.OnDemand = onDemand
	if err := l.startAll(ctx); err != nil {
		err = fmt.Errorf("start lab %s: %w%s", name, err, l.logTail())
		return nil, errors.Join(err, l.removeAll(context.WithoutCancel(ctx)))
	}
	return l, nil
}

// Built returns an error if home lacks a file that `make lab` builds. The error names the first missing file.
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

// lockHome locks the .lab directory home, so that only one process at a time starts or stops labs in it.
func lockHome(ctx context.Context, home string) (*os.File, error) {
	return acquireLock(ctx, filepath.Join(home, "lock"), false)
}

// startAll starts containerd and the registry of a new lab, and loads its images.
func (l *Lab) startAll(ctx context.Context) error {
	for _, dir := range []string{l.Dir(), filepath.Join(l.Dir(), "tmp"), l.registryDir(), l.StateDir()} {
		if err := os.MkdirAll(dir, 0o711); err != nil {
			return err
		}
	}
	if err := l.prepareConfig(); err != nil {
		return err
	}
	var err error
	l.record.Registry, err = startProcess(l.registryLog(), l.Dir(), l.binPath("crane"), "registry", "serve",
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
	if err := l.saveRecord(); err != nil || !l.record.OnDemand {
		return err
	}
	_, err = startProcess(filepath.Join(l.home, "watch.log"), l.home, l.binPath("lab"), "watch", l.record.Name)
	return err
}

// prepareConfig selects the subnet and the snapshotter of the lab, and writes its configuration files.
func (l *Lab) prepareConfig() error {
	used, err := net.InterfaceAddrs()
	if err != nil {
		return err
	}
	subnet, err := pickSubnet(l.record.ID, used)
	if err != nil {
		return err
	}
	l.record.Subnet = subnet.String()
	if l.record.Snapshotter, err = pickSnapshotter(l.Dir()); err != nil {
		return err
	}
	mayLower, err := mayLowerOOMScore()
	if err != nil {
		return err
	}
	_, err = exec.LookPath("iptables")
	return l.writeConfig(!mayLower, err == nil)
}

// startContainerd starts containerd and waits until its CRI responds.
func (l *Lab) startContainerd(ctx context.Context) error {
	p, err := startProcess(l.LogPath(), l.Dir(), l.binPath("containerd"), "--config", l.configPath())
	if err != nil {
		return err
	}
	l.record.Containerd = p
	// Other processes can then stop a lab that is still starting.
	if err := l.saveRecord(); err != nil {
		return err
	}
	return l.awaitReady(ctx)
}

// awaitReady waits until the CRI responds. If containerd has exited, it returns an error at once.
func (l *Lab) awaitReady(ctx context.Context) error {
	for {
		err := l.Ready(ctx)
		if err == nil {
			return nil
		}
		if !l.record.Containerd.isAlive() {
			reapProcess(l.record.Containerd.PID)
			return err
		}
		if sleepFor(ctx, pollInterval) != nil {
			return fmt.Errorf("wait for containerd: %w", err)
		}
	}
}

// Ready returns nil if containerd runs and its CRI responds within 10 seconds. Otherwise the error is the reason.
func (l *Lab) Ready(ctx context.Context) error {
	if !l.record.Containerd.isAlive() {
		return errors.New("containerd does not run")
	}
	c := l.newRuntimeClient()
	defer c.closeConns()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	_, err := c.invoke(ctx, "Version")
	return err
}

// awaitRegistry waits until the registry has written its port to its log, and stores its address in l.record.
func (l *Lab) awaitRegistry(ctx context.Context) error {
	for {
		b, err := os.ReadFile(l.registryLog())
		if err != nil {
			return err
		}
		if _, rest, ok := strings.Cut(string(b), "serving on port "); ok && strings.Contains(rest, "\n") {
			port, _, _ := strings.Cut(rest, "\n")
			l.record.RegistryHost = net.JoinHostPort("127.0.0.1", port)
			return nil
		}
		if !l.record.Registry.isAlive() {
			return fmt.Errorf("the registry ended at once: %s", b)
		}
		if err := sleepFor(ctx, pollInterval); err != nil {
			return fmt.Errorf("wait for the registry: %w", err)
		}
	}
}

// loadImages imports the images pause and busybox into containerd, and pushes busybox to the lab's registry.
func (l *Lab) loadImages(ctx context.Context) error {
	if err := l.Import(ctx, "pause", "busybox"); err != nil {
		return err
	}
	// The flag makes crane use HTTP; its output is the name with the digest.
	pushed, err := l.runTool(ctx, "crane", "push", "--insecure", l.imagePath("busybox"), l.RegistryImage())
	if err != nil {
		return err
	}
	l.record.RegistryDigest = strings.TrimSpace(pushed)
	return nil
}

// Import loads images into containerd. An image called name is the archive name.tar in .lab/images.
func (l *Lab) Import(ctx context.Context, names ...string) error {
	for _, name := range names {
		_, err := l.runTool(ctx, "ctr", "--address", l.socketPath(), "--namespace", "k8s.io",
			"images", "import", "--local", "--snapshotter", l.record.Snapshotter, l.imagePath(name))
		if err != nil {
			return err
		}
	}
	return nil
}

// runTool runs the program called name, which `make lab` has built, and returns its standard output.
func (l *Lab) runTool(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, l.binPath(name), args...)
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

// logTail returns the end of containerd's log, for the text of an error.
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

// Kill kills containerd with SIGKILL. The pods continue to run under their shims. Do not call it for the shared lab, because
// other tests use that lab.
func (l *Lab) Kill(ctx context.Context) error { return l.record.Containerd.killProcess(ctx) }

// Restart kills containerd if it runs, starts it again with its previous state, and waits until its CRI responds. The pods
// continue to run.
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
		return fmt.Errorf("restart lab %s: %w%s", l.record.Name, err, l.logTail())
	}
	return nil
}
