// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// cniResults is where libcni keeps the results of ADD. containerd gives it no other place.
const cniResults = "/var/lib/cni/results"

// downTimeout is for all of Down, which takes a second and a tenth of one for each container.
const downTimeout = 2 * time.Minute

// Down stops what runs, pods among it, and removes all that the lab made. It may be called for a lab that
// crashed, half started, or is gone.
func (l *Lab) Down(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, downTimeout)
	defer cancel()
	lock, err := lockHome(ctx, l.home)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := l.clear(ctx); err != nil {
		return fmt.Errorf("stop lab %s: %w", l.rec.Name, err)
	}
	return nil
}

// downIfOnDemand is Down, unless the lab has been asked for by name in the meantime.
func (l *Lab) downIfOnDemand(ctx context.Context) error {
	lock, err := lockHome(ctx, l.home)
	if err != nil {
		return err
	}
	defer lock.Close()
	if now, err := Open(l.home, l.rec.Name); err != nil || !now.rec.OnDemand {
		return nil
	}
	return l.clear(ctx)
}

// clear is Down with the lock held. It does not ask containerd to remove the pods, which may be dead, hung or
// half started: what a pod is made of is known. Every step runs, whatever the ones before it came to, and the
// directories go last and only when nothing is mounted below them.
func (l *Lab) clear(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, downTimeout)
	defer cancel()
	err := errors.Join(
		stopAll(ctx, processesOf(l.bin("containerd"), l.configPath()), stopGrace),
		stopAll(ctx, processesOf(l.bin("crane"), l.registryDir()), stopGrace),
		l.removeContainers(ctx),
		stopAll(ctx, l.shims(), 0),
		l.removeAttachments(ctx),
		l.unmountAll(),
		l.removeBridge(ctx),
	)
	if err != nil {
		return err
	}
	err = errors.Join(os.RemoveAll(l.Dir()), os.RemoveAll(l.StateDir()))
	// These are shared with other labs and go with the last one.
	_ = os.Remove(filepath.Dir(l.Dir()))
	_ = os.Remove(runBase)
	return err
}

// removeContainers kills and removes all that runc knows of, sandboxes among them.
func (l *Lab) removeContainers(ctx context.Context) error {
	root := filepath.Join(l.runcRoot(), "k8s.io")
	var errs []error
	for _, id := range names(root) {
		_, err := l.output(ctx, "runc", "--root", root, "delete", "--force", id)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// removeAttachments removes what the networks of pods leave outside of namespace, bridge and directories:
// firewall rules, by having portmap do it, and the results that libcni keeps, which also tell whose they are.
func (l *Lab) removeAttachments(ctx context.Context) error {
	results, err := filepath.Glob(filepath.Join(cniResults, l.network()+"-*"))
	errs := []error{err}
	for _, path := range results {
		sandbox, iface, _ := strings.Cut(strings.TrimPrefix(filepath.Base(path), l.network()+"-"), "-")
		errs = append(errs, l.removeHostPorts(ctx, sandbox, iface), os.Remove(path))
		loopback := filepath.Join(cniResults, "cni-loopback-"+sandbox+"-lo")
		if err := os.Remove(loopback); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (l *Lab) removeHostPorts(ctx context.Context, sandbox, iface string) error {
	cmd := exec.CommandContext(ctx, l.bin("portmap"))
	cmd.Env = append(os.Environ(), "CNI_COMMAND=DEL", "CNI_CONTAINERID="+sandbox, "CNI_IFNAME="+iface, "CNI_PATH="+l.BinDir())
	// The port is made up: portmap does nothing without one, and finds its rules by the id.
	cmd.Stdin = strings.NewReader(fmt.Sprintf(`{"cniVersion":%q,"name":%q,"type":"portmap",
		"runtimeConfig":{"portMappings":[{"hostPort":1,"containerPort":1,"protocol":"tcp"}]}}`, cniVersion, l.network()))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("remove host ports of pod %s: %w: %s", sandbox, err, out)
	}
	return nil
}

func (l *Lab) shims() []process {
	return processesOf(l.bin("containerd-shim-runc-v2"), l.socket())
}

func (l *Lab) unmountAll() error {
	points, err := l.mounts()
	errs := []error{err}
	for _, point := range points {
		errs = append(errs, detach(point))
	}
	return errors.Join(errs...)
}

func (l *Lab) mounts() ([]string, error) {
	state, err := mountsBelow(l.StateDir())
	if err != nil {
		return nil, err
	}
	stored, err := mountsBelow(l.Dir())
	return slices.Concat(state, stored), err
}

// removeBridge removes the bridge and what is attached to it. The other end of each pair is gone already or goes
// with it.
func (l *Lab) removeBridge(ctx context.Context) error {
	links := append(l.ports(), l.Bridge())
	var errs []error
	for _, link := range links {
		if !linkExists(link) {
			continue
		}
		out, err := exec.CommandContext(ctx, "ip", "link", "delete", link).CombinedOutput()
		if err != nil && linkExists(link) { // not gone by itself in between
			errs = append(errs, fmt.Errorf("delete interface %s: %w: %s", link, err, out))
		}
	}
	return errors.Join(errs...)
}

func linkExists(name string) bool {
	_, err := os.Stat("/sys/class/net/" + name)
	return err == nil
}

// ports returns the host ends of the pods' interfaces.
func (l *Lab) ports() []string {
	return names("/sys/class/net/" + l.Bridge() + "/brif")
}

// Leftovers lists what exists because pods exist, one "kind name" a line, sorted: sandboxes, containers, shims,
// mounts, network namespaces, interfaces and addresses. An empty lab has none, so a private lab must return none
// once its pods are removed; what is left then was leaked.
func (l *Lab) Leftovers(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var found []string
	add := func(kind string, names ...string) {
		for _, name := range names {
			found = append(found, kind+" "+name)
		}
	}
	c := l.client()
	defer c.close()
	sandboxes, err := c.list(ctx, "ListPodSandbox")
	if err != nil {
		return nil, err
	}
	containers, err := c.list(ctx, "ListContainers")
	if err != nil {
		return nil, err
	}
	mounts, err := l.mounts()
	if err != nil {
		return nil, err
	}
	add("sandbox", sandboxes...)
	add("container", containers...)
	add("mount", mounts...)
	add("interface", l.ports()...)
	add("netns", names(filepath.Join(l.StateDir(), "state", "io.containerd.grpc.v1.cri", "netns"))...)
	add("runc", names(filepath.Join(l.runcRoot(), "k8s.io"))...)
	for _, p := range l.shims() {
		add("shim", fmt.Sprint(p.PID))
	}
	for _, name := range names(filepath.Join(l.addressDir(), l.network())) {
		if strings.Count(name, ".") == 3 { // host-local keeps a lock and a cursor beside the addresses
			add("address", name)
		}
	}
	slices.Sort(found)
	return found, nil
}

// names returns the entries of a directory that may not exist.
func names(dir string) []string {
	entries, _ := os.ReadDir(dir)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}
