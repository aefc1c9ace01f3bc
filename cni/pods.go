// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/containernetworking/cni/libcni"

	"github.com/seed81659283/nodeagent/cni/netns"
	"github.com/seed81659283/nodeagent/internal/dirlock"
)

// Defaults of [Options]. DefaultConfDir is the convention of container runtimes.
const (
	DefaultConfDir  = "/etc/cni/net.d"
	DefaultNetnsDir = "/run/nodeagent/netns"
)

// Options configure [Pods]. The zero value is right for production.
type Options struct {
	ConfDir      string     // directory of configuration files; empty: DefaultConfDir
	PluginDirs   []string   // plugin directories, the first match counts; nil: DefaultPluginDir
	NetnsDir     string     // directory of network namespaces, for this Pods only; empty: DefaultNetnsDir
	Network      string     // name of the network of pods; empty: the network of the first file
	NetworkCount int        // number of networks of a pod, as eth0, eth1 and so on, in the order of the files; zero: 1
	PreferFamily Family     // address family of the primary address of a dual-stack pod; zero: IPv4
	Timeouts     Timeouts   // zero fields have defaults
	Parallel     int        // sandboxes that Retain tears down concurrently; zero: 8
	PluginCalled func(Call) // called after each run of a plugin, from the goroutine of the caller; nil: not called
}

// Pods sets up and tears down the network of pod sandboxes: a network namespace for each sandbox and its attachments to networks.
type Pods struct {
	opts       Options
	confDir    *Dir
	plugins    *Plugins
	records    recordDir
	namespaces *netns.Dir
	locks      []*dirlock.Lock

	mu         sync.Mutex               // guards the fields below
	busy       map[string]chan struct{} // by sandbox ID: running calls; the channel is closed at the end
	own        map[string]*record       // by sandbox ID: sandboxes that this Pods has set up or is setting up
	collecting map[string]chan struct{} // by network name: running garbage collections; the channel is closed at the end
}

// Open returns a Pods that stores one JSON file per sandbox in a directory, which it creates if necessary. It locks that
// directory and Options.NetnsDir until [Pods.Close]. If another Pods has locked one, it returns an error.
func Open(dir string, opts Options) (*Pods, error) {
	opts.ConfDir = cmp.Or(opts.ConfDir, DefaultConfDir)
	opts.NetnsDir = cmp.Or(opts.NetnsDir, DefaultNetnsDir)
	opts.Parallel = max(1, cmp.Or(opts.Parallel, 8))
	p := &Pods{
		opts: opts, confDir: NewDir(opts.ConfDir), records: recordDir{filepath.Join(dir, "sandboxes")}, namespaces: netns.New(opts.NetnsDir),
		plugins: NewPlugins(PluginOptions{
			Dirs: opts.PluginDirs, CacheDir: filepath.Join(dir, "cache"), Timeouts: opts.Timeouts, PluginCalled: opts.PluginCalled,
		}),
		busy: map[string]chan struct{}{}, own: map[string]*record{}, collecting: map[string]chan struct{}{},
	}
	for _, d := range []struct { // in this order, because a directory may contain another
		path string
		mode fs.FileMode
	}{{dir, 0o700}, {p.records.dir, 0o700}, {opts.NetnsDir, 0o755}} {
		if err := os.MkdirAll(d.path, d.mode); err != nil {
			return nil, fmt.Errorf("open CNI records: %w", err)
		}
	}
	for _, path := range []string{dir, opts.NetnsDir} {
		lock, err := dirlock.Acquire(path, ".lock")
		if err != nil {
			return nil, fmt.Errorf("open CNI records: lock %s: %w", path, errors.Join(err, p.Close()))
		}
		p.locks = append(p.locks, lock)
	}
	if err := p.records.removeTemporary(); err != nil {
		return nil, fmt.Errorf("open CNI records: %w", errors.Join(err, p.Close()))
	}
	return p, nil
}

// Close releases the locks of the directories. It leaves the networks of pods set up. No other method may be called during
// or after Close.
func (p *Pods) Close() error {
	var errs []error
	for _, lock := range p.locks {
		errs = append(errs, lock.Release())
	}
	p.locks = nil
	return errors.Join(errs...)
}

// Config returns the networks and the invalid files that are now in the configuration directory.
func (p *Pods) Config() Config { return p.confDir.Load() }

// podNetworks returns the networks to which a new pod is attached. It reads the configuration directory.
func (p *Pods) podNetworks() ([]*Network, error) {
	c := p.confDir.Load()
	chosen, err := ChooseNetworks(c.Networks, p.opts.Network, p.opts.NetworkCount)
	if err != nil {
		err = fmt.Errorf("%w in %s", err, p.opts.ConfDir)
		for _, problem := range c.Problems {
			err = fmt.Errorf("%w; %w", err, problem)
		}
	}
	return chosen, err
}

// Ready returns an error if no pod network can be set up now, because none is configured, or a plugin is missing or not ready. It
// does not wait for calls of other methods.
func (p *Pods) Ready(ctx context.Context) error {
	networks, err := p.podNetworks()
	if err != nil {
		return err
	}
	for _, n := range networks {
		if err := p.plugins.Status(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

// PodStatus is the network status of a pod sandbox.
type PodStatus struct {
	Netns    string       // path of the network namespace; empty: removed
	IPs      []netip.Addr // addresses of the pod, the primary one first
	Networks []PodNetwork
}

// PodNetwork is an interface of a pod in a network.
type PodNetwork struct {
	Network   string
	Interface string
	Result    Result
}

// Inspect returns the network status of a sandbox as recorded by [Pods.Setup]. If there is no record of the sandbox, the
// error wraps [fs.ErrNotExist].
func (p *Pods) Inspect(sandboxID string) (*PodStatus, error) {
	r, err := p.records.readRecord(sandboxID)
	if err != nil {
		return nil, fmt.Errorf("inspect network of sandbox %s: %w", sandboxID, stripPath(err))
	}
	status := &PodStatus{}
	if p.namespaces.Pinned(sandboxID) {
		status.Netns = p.namespaces.Path(sandboxID)
	}
	all, err := r.parseAttachments(status.Netns)
	for i := 0; i < len(all) && err == nil; i++ {
		var result *Result
		if result, err = p.plugins.readCachedResult(all[i].network, all[i].attachment); err == nil {
			status.addNetwork(all[i], result, p.opts.PreferFamily)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("inspect network of sandbox %s: %w", sandboxID, err)
	}
	return status, nil
}

// addNetwork adds an attached interface and its result to the status.
func (s *PodStatus) addNetwork(attached networkAttachment, result *Result, prefer Family) {
	// the first interface has the addresses of the pod
	if len(s.Networks) == 0 {
		s.IPs = podIPs(result, attached.attachment.Interface, prefer)
	}
	s.Networks = append(s.Networks, PodNetwork{Network: attached.network.Name, Interface: attached.attachment.Interface, Result: *result})
}

// readCachedResult returns the result of ADD for an attachment from libcni's cache.
func (p *Plugins) readCachedResult(network *Network, attachment Attachment) (*Result, error) {
	if err := p.removeDamagedCache(network, attachment); err != nil {
		return nil, err
	}
	r, err := p.lib.GetNetworkListCachedResult(network.list, &libcni.RuntimeConf{ContainerID: attachment.ContainerID, IfName: attachment.Interface})
	if err != nil {
		return nil, err
	}
	if r == nil {
		return nil, fmt.Errorf("network %q, interface %s: no cached result: %w", network.Name, attachment.Interface, fs.ErrNotExist)
	}
	return convertResult(r)
}

// lockSandbox locks a sandbox, after waiting until no other call uses it. The caller must call unlock.
func (p *Pods) lockSandbox(ctx context.Context, sandbox string) (unlock func(), err error) {
	for {
		p.mu.Lock()
		other, ok := p.busy[sandbox]
		if !ok {
			done := make(chan struct{})
			p.busy[sandbox] = done
			p.mu.Unlock()
			return func() {
				p.mu.Lock()
				delete(p.busy, sandbox)
				p.mu.Unlock()
				close(done)
			}, nil
		}
		p.mu.Unlock()
		if err := awaitClosed(ctx, other); err != nil {
			return nil, err
		}
	}
}

// awaitClosed waits until done is closed or ctx ends.
func awaitClosed(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// isOwn reports whether this Pods has set up the sandbox, or is setting it up.
func (p *Pods) isOwn(sandbox string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.own[sandbox] != nil
}

// addOwn records that this Pods sets up a sandbox, after it has waited for garbage collections of its networks.
func (p *Pods) addOwn(ctx context.Context, rec *record) error {
	for {
		p.mu.Lock()
		at := slices.IndexFunc(rec.Attachments, func(a recordAttachment) bool { return p.collecting[a.Network] != nil })
		if at < 0 {
			p.own[rec.Sandbox] = rec
			p.mu.Unlock()
			return nil
		}
		gate := p.collecting[rec.Attachments[at].Network]
		p.mu.Unlock()
		if err := awaitClosed(ctx, gate); err != nil { // a collection would remove the new attachments
			return err
		}
	}
}

// removeOwn removes the sandbox that addOwn has recorded.
func (p *Pods) removeOwn(sandbox string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.own, sandbox)
}
