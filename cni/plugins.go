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

// DefaultPluginDir is the conventional directory of plugins.
const DefaultPluginDir = "/opt/cni/bin"

// Timeouts limit how long all plugins of a network may take for one command. Zero means the default.
type Timeouts struct {
	Add     time.Duration // zero: 2 min, the kubelet's limit for a sandbox
	Del     time.Duration // zero: 1 minute
	Check   time.Duration // zero: 30 s
	GC      time.Duration // zero: 30 s; set-ups in the network wait meanwhile
	Status  time.Duration // zero: 10 s
	Version time.Duration // zero: 10 s
}

func (t Timeouts) withDefaults() Timeouts {
	return Timeouts{
		Add: cmp.Or(t.Add, 2*time.Minute), Del: cmp.Or(t.Del, time.Minute), Check: cmp.Or(t.Check, 30*time.Second),
		GC: cmp.Or(t.GC, 30*time.Second), Status: cmp.Or(t.Status, 10*time.Second), Version: cmp.Or(t.Version, 10*time.Second),
	}
}

// PluginOptions configure [Plugins]. Only CacheDir is required.
type PluginOptions struct {
	Dirs         []string   // plugin directories, the first match counts; nil means DefaultPluginDir
	CacheDir     string     // directory for results of ADD; must not be shared
	Timeouts     Timeouts   // zero fields have defaults
	PluginCalled func(Call) // called after each run of a plugin, from the goroutine of the caller; nil: not called
}

// Plugins runs the plugins of networks, with a method for each CNI command. At the timeout of a call, all processes of the plugin
// are killed.
type Plugins struct {
	dirs     []string
	cacheDir string
	timeouts Timeouts
	lib      *libcni.CNIConfig
}

// NewPlugins returns a Plugins with these options. It panics if CacheDir is empty.
func NewPlugins(opts PluginOptions) *Plugins {
	if opts.CacheDir == "" {
		panic("cni.NewPlugins: PluginOptions.CacheDir is empty: required, such as /var/lib/cni/cache")
	}
	dirs := opts.Dirs
	if len(dirs) == 0 {
		dirs = []string{DefaultPluginDir}
	}
	return &Plugins{
		dirs: slices.Clone(dirs), cacheDir: opts.CacheDir, timeouts: opts.Timeouts.withDefaults(),
		lib: libcni.NewCNIConfigWithCacheDir(dirs, opts.CacheDir, &pluginRunner{called: opts.PluginCalled}),
	}
}

// Attachment is an interface of a container in a network.
type Attachment struct {
	ContainerID  string
	Netns        string // path of the network namespace; empty: removed, which only DEL accepts
	Interface    string // such as "eth0"
	Args         [][2]string
	Capabilities Capabilities
}

// runtimeConf converts the attachment to a libcni.RuntimeConf.
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

// Add attaches a container to network, with the parameters in attachment. If it fails, the container may be partly attached,
// and the caller must call [Plugins.Del].
func (p *Plugins) Add(ctx context.Context, network *Network, attachment Attachment) (*Result, error) {
	ctx, cancel := context.WithTimeout(ctx, p.timeouts.Add)
	defer cancel()
	r, err := p.addAttachment(ctx, network, attachment)
	if err != nil {
		return nil, newError("ADD", network, attachment, err)
	}
	return r, nil
}

func (p *Plugins) addAttachment(ctx context.Context, network *Network, attachment Attachment) (*Result, error) {
	if err := checkID(attachment.ContainerID); err != nil {
		return nil, err
	}
	r, err := p.lib.AddNetworkList(ctx, network.list, attachment.runtimeConf())
	if err != nil {
		return nil, err
	}
	converted, err := convertResult(r)
	if err != nil {
		return nil, fmt.Errorf("result: %w", err)
	}
	return converted, nil
}

// Del detaches a container from network. It also succeeds if the container is not attached, so that it can be repeated.
func (p *Plugins) Del(ctx context.Context, network *Network, attachment Attachment) error {
	ctx, cancel := context.WithTimeout(ctx, p.timeouts.Del)
	defer cancel()
	err := p.removeDamagedCache(network, attachment)
	if err == nil {
		err = p.lib.DelNetworkList(ctx, network.list, attachment.runtimeConf())
	}
	if isDetached(err, attachment.Netns) {
		return p.removeCachedResult(network, attachment)
	}
	return newError("DEL", network, attachment, err)
}

// Check returns an error if the attachment has changed since ADD. For a network with a CNI version below 0.4.0, which has
// no command CHECK, it returns nil.
func (p *Plugins) Check(ctx context.Context, network *Network, attachment Attachment) error {
	ctx, cancel := context.WithTimeout(ctx, p.timeouts.Check)
	defer cancel()
	if able, err := version.GreaterThanOrEqualTo(cmp.Or(network.Version, "0.1.0"), "0.4.0"); err != nil || !able {
		return newError("CHECK", network, attachment, err)
	}
	err := p.removeDamagedCache(network, attachment)
	if err == nil {
		err = p.lib.CheckNetworkList(ctx, network.list, attachment.runtimeConf())
	}
	return newError("CHECK", network, attachment, err)
}

// GC makes the plugins of a network free the resources of all attachments except the valid ones; the list must be complete. For
// such attachments in libcni's cache, it runs DEL first. It requires CNI version 1.1.0.
func (p *Plugins) GC(ctx context.Context, network *Network, valid []Attachment) error {
	ctx, cancel := context.WithTimeout(ctx, p.timeouts.GC)
	defer cancel()
	args := &libcni.GCArgs{ValidAttachments: []types.GCAttachment{}}
	for _, a := range valid {
		args.ValidAttachments = append(args.ValidAttachments, types.GCAttachment{ContainerID: a.ContainerID, IfName: a.Interface})
	}
	return newError("GC", network, Attachment{}, p.lib.GCNetworkList(ctx, network.list, args))
}

// Status returns an error if containers cannot be attached to network now: a plugin is missing, or a plugin of CNI version
// 1.1.0 reports an error.
func (p *Plugins) Status(ctx context.Context, network *Network) error {
	ctx, cancel := context.WithTimeout(ctx, p.timeouts.Status)
	defer cancel()
	err := p.checkPlugins(network)
	if err == nil {
		err = p.lib.GetStatusNetworkList(ctx, network.list)
	}
	return newError("STATUS", network, Attachment{}, err)
}

// checkPlugins returns an error if the executable of one of the network's plugins is missing.
func (p *Plugins) checkPlugins(network *Network) error {
	for _, plugin := range network.Plugins {
		if _, err := invoke.FindInPath(plugin.Type, p.dirs); err != nil {
			return err
		}
	}
	return nil
}

// Versions returns the CNI versions that a plugin supports. It calls the plugin with this file name with the command
// VERSION.
func (p *Plugins) Versions(ctx context.Context, plugin string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, p.timeouts.Version)
	defer cancel()
	info, err := p.lib.GetVersionInfo(ctx, plugin)
	if err != nil {
		return nil, fmt.Errorf("CNI VERSION of plugin %q: %w", plugin, err)
	}
	return info.SupportedVersions(), nil
}

// errInvalidCacheName is the error for a network, container ID or interface name that libcni could not use in a file name, so
// that it would find a wrong result.
var errInvalidCacheName = errors.New("the network, container ID or interface name is not valid in a file name")

// cachePath returns the path of an attachment's result in libcni's cache.
func (p *Plugins) cachePath(network *Network, attachment Attachment) (string, error) {
	if checkID(attachment.ContainerID) != nil || !validName.MatchString(network.Name) || !validName.MatchString(attachment.Interface) {
		return "", errInvalidCacheName
	}
	return filepath.Join(p.cacheDir, "results", network.Name+"-"+attachment.ContainerID+"-"+attachment.Interface), nil
}
