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

// cniResults is the directory in which libcni stores the results of ADD. containerd cannot configure it.
const cniResults = "/var/lib/cni/results"

// downTimeout limits Down, which takes a second and 0.1 s per container.
const downTimeout = 2 * time.Minute

// Down stops all processes and pods of the lab, and removes its files. It also works after a crash or a partial start of the
// lab, and if the lab does not exist.
func (l *Lab) Down(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, downTimeout)
	defer cancel()
	lock, err := lockHome(ctx, l.home)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := l.removeAll(ctx); err != nil {
		return fmt.Errorf("stop lab %s: %w", l.record.Name, err)
	}
	return nil
}

// downIfOnDemand stops the lab if it was started on demand and [Up] was never called for it.
func (l *Lab) downIfOnDemand(ctx context.Context) error {
	lock, err := lockHome(ctx, l.home)
	if err != nil {
		return err
	}
	defer lock.Close()
	if now, err := Open(l.home, l.record.Name); err != nil || !now.record.OnDemand {
		return nil
	}
	return l.removeAll(ctx)
}

// removeAll stops all processes and pods of the lab, and removes its files. The caller holds the lock of the home directory.
func (l *Lab) removeAll(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, downTimeout)
	defer cancel()
	err := errors.Join(
		stopAll(ctx, findProcesses(l.binPath("containerd"), l.configPath()), stopGrace),
		stopAll(ctx, findProcesses(l.binPath("crane"), l.registryDir()), stopGrace),
		// Without containerd, which may have crashed or hang.
		l.removeContainers(ctx),
		stopAll(ctx, l.findShims(), 0),
		l.removeAttachments(ctx),
		l.unmountAll(),
		l.removeBridge(ctx),
	)
	if err != nil {
		// A file system may still be mounted below the directory of the lab.
		return err
	}
	err = errors.Join(os.RemoveAll(l.Dir()), os.RemoveAll(l.StateDir()))
	// These directories are shared with other labs: the last lab removes them.
	_ = os.Remove(filepath.Dir(l.Dir()))
	_ = os.Remove(runBase)
	return err
}

// removeContainers kills and removes all containers of the lab through runc, including the sandbox containers.
func (l *Lab) removeContainers(ctx context.Context) error {
	root := filepath.Join(l.runcRoot(), "k8s.io")
	var errs []error
	for _, id := range listDir(root) {
		_, err := l.runTool(ctx, "runc", "--root", root, "delete", "--force", id)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// removeAttachments removes the firewall rules for host ports of all pods, and the CNI results that libcni has stored.
func (l *Lab) removeAttachments(ctx context.Context) error {
	results, err := filepath.Glob(filepath.Join(cniResults, l.networkName()+"-*"))
	errs := []error{err}
	for _, path := range results {
		sandbox, iface, _ := strings.Cut(strings.TrimPrefix(filepath.Base(path), l.networkName()+"-"), "-")
		errs = append(errs, l.removeHostPorts(ctx, sandbox, iface), os.Remove(path))
		loopback := filepath.Join(cniResults, "cni-loopback-"+sandbox+"-lo")
		if err := os.Remove(loopback); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (l *Lab) removeHostPorts(ctx context.Context, sandbox, iface string) error {
	cmd := exec.CommandContext(ctx, l.binPath("portmap"))
	cmd.Env = append(os.Environ(), "CNI_COMMAND=DEL", "CNI_CONTAINERID="+sandbox, "CNI_IFNAME="+iface, "CNI_PATH="+l.BinDir())
	// portmap needs any port mapping, and finds its rules by the ID.
	cmd.Stdin = strings.NewReader(fmt.Sprintf(`{"cniVersion":%q,"name":%q,"type":"portmap",
		"runtimeConfig":{"portMappings":[{"hostPort":1,"containerPort":1,"protocol":"tcp"}]}}`, cniVersion, l.networkName()))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("remove host ports of pod %s: %w: %s", sandbox, err, out)
	}
	return nil
}

func (l *Lab) findShims() []process {
	return findProcesses(l.binPath("containerd-shim-runc-v2"), l.socketPath())
}

func (l *Lab) unmountAll() error {
	points, err := l.listMounts()
	errs := []error{err}
	for _, point := range points {
		errs = append(errs, unmountLazily(point))
	}
	return errors.Join(errs...)
}

func (l *Lab) listMounts() ([]string, error) {
	state, err := mountsBelow(l.StateDir())
	if err != nil {
		return nil, err
	}
	stored, err := mountsBelow(l.Dir())
	return slices.Concat(state, stored), err
}

// removeBridge removes the bridge of the pod network and the veth pairs of the pods.
func (l *Lab) removeBridge(ctx context.Context) error {
	// With the host end of a veth pair, the kernel removes the other end.
	links := append(l.listPorts(), l.Bridge())
	var errs []error
	for _, link := range links {
		if !linkExists(link) {
			continue
		}
		out, err := exec.CommandContext(ctx, "ip", "link", "delete", link).CombinedOutput()
		if err != nil && linkExists(link) { // it was not removed meanwhile
			errs = append(errs, fmt.Errorf("delete interface %s: %w: %s", link, err, out))
		}
	}
	return errors.Join(errs...)
}

func linkExists(name string) bool {
	_, err := os.Stat("/sys/class/net/" + name)
	return err == nil
}

// listPorts returns the names of the interfaces on the bridge, which are the host ends of the pods' veth pairs.
func (l *Lab) listPorts() []string {
	return listDir("/sys/class/net/" + l.Bridge() + "/brif")
}

// Leftovers returns the resources of all pods in the lab as sorted lines "KIND NAME", such as sandboxes, mounts and
// addresses. If a test has removed all pods of its private lab, each line is a leak.
func (l *Lab) Leftovers(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var found []string
	add := func(kind string, names ...string) {
		for _, name := range names {
			found = append(found, kind+" "+name)
		}
	}
	c := l.newRuntimeClient()
	defer c.closeConns()
	sandboxes, err := c.listIDs(ctx, "ListPodSandbox")
	if err != nil {
		return nil, err
	}
	containers, err := c.listIDs(ctx, "ListContainers")
	if err != nil {
		return nil, err
	}
	mounts, err := l.listMounts()
	if err != nil {
		return nil, err
	}
	add("sandbox", sandboxes...)
	add("container", containers...)
	add("mount", mounts...)
	add("interface", l.listPorts()...)
	add("netns", listDir(filepath.Join(l.StateDir(), "state", "io.containerd.grpc.v1.cri", "netns"))...)
	add("runc", listDir(filepath.Join(l.runcRoot(), "k8s.io"))...)
	for _, p := range l.findShims() {
		add("shim", fmt.Sprint(p.PID))
	}
	for _, name := range listDir(filepath.Join(l.addressDir(), l.networkName())) {
		if strings.Count(name, ".") == 3 { // host-local also stores a lock and a cursor
			add("address", name)
		}
	}
	slices.Sort(found)
	return found, nil
}

// listDir returns the names of the entries in dir, or nil if dir cannot be read.
func listDir(dir string) []string {
	entries, _ := os.ReadDir(dir)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}
