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

// The defaults of [Options]. That of files is the convention of container runtimes.
const (
	DefaultConfDir  = "/etc/cni/net.d"
	DefaultNetnsDir = "/run/nodeagent/netns"
)

// Options tunes [Pods]. The zero value is for production.
type Options struct {
	ConfDir    string     // configuration files; empty: DefaultConfDir
	PluginDirs []string   // where plugins are, the first wins; nil: DefaultPluginDir
	NetnsDir   string     // network namespaces, of this Pods alone; empty: DefaultNetnsDir
	Network    string     // the network of pods; empty: that of the first file
	Networks   int        // how many a pod is attached to, as eth0 and so on, in the order of the files; zero: 1
	Prefer     Family     // of the primary address of a pod of several; zero: IPv4
	Timeouts   Timeouts   // a zero one has its default
	Parallel   int        // sandboxes that Retain tears down at a time; zero: 8
	Called     func(Call) // called after each run of a plugin, from the goroutine that wanted it; nil: it is not
}

// Pods sets up and tears down the network of pod sandboxes: a network namespace for each, and the networks in it.
type Pods struct {
	opts    Options
	conf    *Dir
	plugins *Plugins
	records records
	spaces  *netns.Dir
	locks   []*dirlock.Lock

	mu    sync.Mutex               // guards what follows
	busy  map[string]chan struct{} // sandboxes that a call works on; closed at its end
	mine  map[string]*record       // sandboxes that this Pods has set up, or is setting up
	gates map[string]chan struct{} // networks whose plugins collect garbage; closed at its end
}

// Open returns the Pods that keeps its records in a directory, which it makes when needed. Directory and Options.NetnsDir
// are of one Pods at a time, which locks them; [Pods.Close] releases them.
func Open(dir string, o Options) (*Pods, error) {
	o.ConfDir = cmp.Or(o.ConfDir, DefaultConfDir)
	o.NetnsDir = cmp.Or(o.NetnsDir, DefaultNetnsDir)
	o.Parallel = max(1, cmp.Or(o.Parallel, 8))
	p := &Pods{
		opts: o, conf: NewDir(o.ConfDir), records: records{filepath.Join(dir, "sandboxes")}, spaces: netns.New(o.NetnsDir),
		plugins: NewPlugins(PluginOptions{
			Dirs: o.PluginDirs, CacheDir: filepath.Join(dir, "cache"), Timeouts: o.Timeouts, Called: o.Called,
		}),
		busy: map[string]chan struct{}{}, mine: map[string]*record{}, gates: map[string]chan struct{}{},
	}
	for _, d := range []struct { // in this order, as one may be in the other
		path string
		mode fs.FileMode
	}{{dir, 0o700}, {p.records.dir, 0o700}, {o.NetnsDir, 0o755}} {
		if err := os.MkdirAll(d.path, d.mode); err != nil {
			return nil, fmt.Errorf("open CNI records: %w", err)
		}
	}
	for _, path := range []string{dir, o.NetnsDir} {
		lock, err := dirlock.Take(path, ".lock")
		if err != nil {
			return nil, fmt.Errorf("open CNI records: lock %s: %w", path, errors.Join(err, p.Close()))
		}
		p.locks = append(p.locks, lock)
	}
	if err := p.records.clean(); err != nil {
		return nil, fmt.Errorf("open CNI records: %w", errors.Join(err, p.Close()))
	}
	return p, nil
}

// Close releases the directories. No method may be called at the same time or after it. Networks stay as they are.
func (p *Pods) Close() error {
	var errs []error
	for _, lock := range p.locks {
		errs = append(errs, lock.Release())
	}
	p.locks = nil
	return errors.Join(errs...)
}

// Config returns the networks that the configuration files have now, and the files that are bad.
func (p *Pods) Config() Config { return p.conf.Load() }

// networks returns those that a pod is attached to now.
func (p *Pods) networks() ([]*Network, error) {
	c := p.conf.Load()
	chosen, err := Choose(c.Networks, p.opts.Network, p.opts.Networks)
	if err != nil {
		err = fmt.Errorf("%w in %s", err, p.opts.ConfDir)
		for _, problem := range c.Problems {
			err = fmt.Errorf("%w; %w", err, problem)
		}
	}
	return chosen, err
}

// Ready reports an error if a pod cannot be set up now: no file has its network, a plugin is missing, or one says that it
// is not ready. It waits for no other call.
func (p *Pods) Ready(ctx context.Context) error {
	networks, err := p.networks()
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

// PodStatus is the network of a pod sandbox.
type PodStatus struct {
	Netns    string       // path of the network namespace; empty: it is gone
	IPs      []netip.Addr // of the pod, the primary one first
	Networks []PodNetwork
}

// PodNetwork is an interface of a pod.
type PodNetwork struct {
	Network   string
	Interface string
	Result    Result
}

// Inspect returns the network of a sandbox as its set-up has left it. Its error is [fs.ErrNotExist] where there is none.
func (p *Pods) Inspect(sandboxID string) (*PodStatus, error) {
	r, err := p.records.read(sandboxID)
	if err != nil {
		return nil, fmt.Errorf("inspect network of sandbox %s: %w", sandboxID, cause(err))
	}
	status := &PodStatus{}
	if p.spaces.Pinned(sandboxID) {
		status.Netns = p.spaces.Path(sandboxID)
	}
	all, err := r.attachments(status.Netns)
	for i := 0; i < len(all) && err == nil; i++ {
		var result *Result
		if result, err = p.plugins.cachedResult(all[i].network, all[i].attachment); err == nil {
			status.add(all[i], result, p.opts.Prefer)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("inspect network of sandbox %s: %w", sandboxID, err)
	}
	return status, nil
}

// add adds an interface; the first one has the addresses of the pod.
func (s *PodStatus) add(a networkAttachment, r *Result, prefer Family) {
	if len(s.Networks) == 0 {
		s.IPs = podIPs(r, a.attachment.Interface, prefer)
	}
	s.Networks = append(s.Networks, PodNetwork{Network: a.network.Name, Interface: a.attachment.Interface, Result: *r})
}

// cachedResult returns what the ADD of an attachment came to.
func (p *Plugins) cachedResult(n *Network, a Attachment) (*Result, error) {
	if err := p.checkCached(n, a); err != nil {
		return nil, err
	}
	r, err := p.lib.GetNetworkListCachedResult(n.list, &libcni.RuntimeConf{ContainerID: a.ContainerID, IfName: a.Interface})
	if err != nil {
		return nil, err
	}
	if r == nil {
		return nil, fmt.Errorf("network %q, interface %s: its result is not there: %w", n.Name, a.Interface, fs.ErrNotExist)
	}
	return convert(r)
}

// enter waits until no other call works on a sandbox, and keeps others out until leave is called.
func (p *Pods) enter(ctx context.Context, sandbox string) (leave func(), err error) {
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
		if err := await(ctx, other); err != nil {
			return nil, err
		}
	}
}

// await waits until a channel is closed.
func await(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// isMine reports whether this Pods has set up a sandbox.
func (p *Pods) isMine(sandbox string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mine[sandbox] != nil
}

// claim makes a sandbox one of this Pods, once nobody collects the garbage of its networks: its attachments would be taken
// for garbage.
func (p *Pods) claim(ctx context.Context, r *record) error {
	for {
		p.mu.Lock()
		at := slices.IndexFunc(r.Attachments, func(a recordAttachment) bool { return p.gates[a.Network] != nil })
		if at < 0 {
			p.mine[r.Sandbox] = r
			p.mu.Unlock()
			return nil
		}
		gate := p.gates[r.Attachments[at].Network]
		p.mu.Unlock()
		if err := await(ctx, gate); err != nil {
			return err
		}
	}
}

// disclaim ends a claim.
func (p *Pods) disclaim(sandbox string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.mine, sandbox)
}
