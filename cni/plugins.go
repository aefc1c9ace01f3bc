// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"
)

// DefaultPluginDir is where plugins are by convention.
const DefaultPluginDir = "/opt/cni/bin"

// Timeouts are how long the plugins of a network may take for one command, all together. Zero means the default.
type Timeouts struct {
	Add     time.Duration // zero: 2 minutes, which a pod's sandbox may take in the kubelet
	Del     time.Duration // zero: 1 minute
	Check   time.Duration // zero: 30 s
	GC      time.Duration // zero: 30 s; attachments to the network wait for it
	Status  time.Duration // zero: 10 s
	Version time.Duration // zero: 10 s
}

func (t Timeouts) withDefaults() Timeouts {
	return Timeouts{
		Add: cmp.Or(t.Add, 2*time.Minute), Del: cmp.Or(t.Del, time.Minute), Check: cmp.Or(t.Check, 30*time.Second),
		GC: cmp.Or(t.GC, 30*time.Second), Status: cmp.Or(t.Status, 10*time.Second), Version: cmp.Or(t.Version, 10*time.Second),
	}
}

// PluginOptions tunes [Plugins]. The zero value is for production, but for CacheDir.
type PluginOptions struct {
	Dirs     []string   // where plugins are, the first wins; nil means DefaultPluginDir
	CacheDir string     // where the results of attachments are kept; required, and nobody else's
	Timeouts Timeouts   // a zero one has its default
	Called   func(Call) // called after each run of a plugin, from the goroutine that wanted it; nil: it is not
}

// Plugins runs the plugins of networks: a method for each command of the CNI. Each call ends at its timeout, with all
// processes of the plugin.
type Plugins struct {
	dirs     []string
	cacheDir string
	timeouts Timeouts
	lib      *libcni.CNIConfig
}

// NewPlugins returns Plugins. It panics without a CacheDir.
func NewPlugins(o PluginOptions) *Plugins {
	if o.CacheDir == "" {
		panic("cni.NewPlugins: PluginOptions.CacheDir is empty: required, such as /var/lib/cni/cache")
	}
	dirs := o.Dirs
	if len(dirs) == 0 {
		dirs = []string{DefaultPluginDir}
	}
	return &Plugins{
		dirs: slices.Clone(dirs), cacheDir: o.CacheDir, timeouts: o.Timeouts.withDefaults(),
		lib: libcni.NewCNIConfigWithCacheDir(dirs, o.CacheDir, &runner{called: o.Called}),
	}
}

// Attachment is an interface of a container in a network.
type Attachment struct {
	ContainerID  string
	Netns        string // path of the network namespace; empty: it is gone, which only DEL accepts
	Interface    string // such as "eth0"
	Args         [][2]string
	Capabilities Capabilities
}

// runtimeConf is what libcni calls an attachment.
func (a Attachment) runtimeConf() *libcni.RuntimeConf {
	rt := &libcni.RuntimeConf{ContainerID: a.ContainerID, NetNS: a.Netns, IfName: a.Interface, Args: a.Args}
	if len(a.Capabilities) > 0 {
		rt.CapabilityArgs = make(map[string]any, len(a.Capabilities))
		for capability, value := range a.Capabilities {
			rt.CapabilityArgs[capability] = value
		}
	}
	return rt
}

// Add attaches a container to a network. After an error the container may be half attached, and is to be detached with
// Del.
func (p *Plugins) Add(ctx context.Context, n *Network, a Attachment) (*Result, error) {
	ctx, cancel := context.WithTimeout(ctx, p.timeouts.Add)
	defer cancel()
	r, err := p.add(ctx, n, a)
	if err != nil {
		return nil, newError("ADD", n, a, err)
	}
	return r, nil
}

func (p *Plugins) add(ctx context.Context, n *Network, a Attachment) (*Result, error) {
	if err := checkID(a.ContainerID); err != nil {
		return nil, err
	}
	r, err := p.lib.AddNetworkList(ctx, n.list, a.runtimeConf())
	if err != nil {
		return nil, err
	}
	converted, err := convert(r)
	if err != nil {
		return nil, fmt.Errorf("result: %w", err)
	}
	return converted, nil
}

// Del detaches a container from a network. It succeeds where nothing is attached, and again after it has succeeded.
func (p *Plugins) Del(ctx context.Context, n *Network, a Attachment) error {
	ctx, cancel := context.WithTimeout(ctx, p.timeouts.Del)
	defer cancel()
	err := p.checkCached(n, a)
	if err == nil {
		err = p.lib.DelNetworkList(ctx, n.list, a.runtimeConf())
	}
	if detached(err, a.Netns) {
		return p.forget(n, a)
	}
	return newError("DEL", n, a, err)
}

// Check reports an error if an attachment is not as its ADD has left it. Networks before version 0.4.0 cannot tell.
func (p *Plugins) Check(ctx context.Context, n *Network, a Attachment) error {
	ctx, cancel := context.WithTimeout(ctx, p.timeouts.Check)
	defer cancel()
	if able, err := version.GreaterThanOrEqualTo(cmp.Or(n.Version, "0.1.0"), "0.4.0"); err != nil || !able {
		return newError("CHECK", n, a, err)
	}
	err := p.checkCached(n, a)
	if err == nil {
		err = p.lib.CheckNetworkList(ctx, n.list, a.runtimeConf())
	}
	return newError("CHECK", n, a, err)
}

// GC lets the plugins of a network remove what belongs to no attachment in the list: valid is all there is of the network.
// It needs version 1.1.0 of the network. Attachments that are cached but not valid are deleted first.
func (p *Plugins) GC(ctx context.Context, n *Network, valid []Attachment) error {
	ctx, cancel := context.WithTimeout(ctx, p.timeouts.GC)
	defer cancel()
	args := &libcni.GCArgs{ValidAttachments: []types.GCAttachment{}}
	for _, a := range valid {
		args.ValidAttachments = append(args.ValidAttachments, types.GCAttachment{ContainerID: a.ContainerID, IfName: a.Interface})
	}
	return newError("GC", n, Attachment{}, p.lib.GCNetworkList(ctx, n.list, args))
}

// Status reports an error if the plugins of a network cannot attach a container now: one is missing, or says so. The
// latter needs version 1.1.0 of the network.
func (p *Plugins) Status(ctx context.Context, n *Network) error {
	ctx, cancel := context.WithTimeout(ctx, p.timeouts.Status)
	defer cancel()
	err := p.find(n)
	if err == nil {
		err = p.lib.GetStatusNetworkList(ctx, n.list)
	}
	return newError("STATUS", n, Attachment{}, err)
}

// find reports an error if a plugin of a network is missing.
func (p *Plugins) find(n *Network) error {
	for _, plugin := range n.Plugins {
		if _, err := invoke.FindInPath(plugin.Type, p.dirs); err != nil {
			return err
		}
	}
	return nil
}

// Versions returns the versions of the specification that a plugin supports.
func (p *Plugins) Versions(ctx context.Context, plugin string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, p.timeouts.Version)
	defer cancel()
	info, err := p.lib.GetVersionInfo(ctx, plugin)
	if err != nil {
		return nil, fmt.Errorf("CNI VERSION of plugin %q: %w", plugin, err)
	}
	return info.SupportedVersions(), nil
}

// errUncacheable says that libcni would find the result of another attachment, or none.
var errUncacheable = errors.New("it has no network, container ID or interface name that a file can be named after")

// cacheFile is where libcni keeps the result of an attachment.
func (p *Plugins) cacheFile(n *Network, a Attachment) (string, error) {
	if checkID(a.ContainerID) != nil || !validName.MatchString(n.Name) || !validName.MatchString(a.Interface) {
		return "", errUncacheable
	}
	return filepath.Join(p.cacheDir, "results", n.Name+"-"+a.ContainerID+"-"+a.Interface), nil
}
