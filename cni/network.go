// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/version"
)

const (
	maxConfig  = 1 << 20 // bytes of a configuration file
	maxPlugins = 64      // plugins of a network
	maxName    = 100     // bytes of a network name, which is part of file names
)

// validName matches the names of networks and the IDs of containers.
var validName = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.\-]*$`)

// Network is a CNI configuration list: the plugins that attach a container to a network. It is immutable.
type Network struct {
	Name    string
	Version string   // CNI version; empty means 0.1.0
	File    string   // path of the configuration file; empty: none
	Plugins []Plugin // in the order of ADD

	list *libcni.NetworkConfigList
}

// Plugin is a plugin of a network.
type Plugin struct {
	Type         string
	Capabilities []string // requested capabilities, sorted
}

// configJSON returns the JSON configuration of the network with all plugins, which may contain secrets. The caller must not
// modify it.
func (n *Network) configJSON() []byte { return n.list.Bytes }

// HasCapability reports whether at least one plugin of the network requests this capability, such as "portMappings".
func (n *Network) HasCapability(capability string) bool {
	return slices.ContainsFunc(n.Plugins, func(p Plugin) bool { return slices.Contains(p.Capabilities, capability) })
}

// ParseNetwork parses the content of a .conflist file as a network. It does not read plugins from other files; [Dir] does.
func ParseNetwork(data []byte) (*Network, error) {
	list, err := parseList(data)
	if err != nil {
		return nil, err
	}
	return newNetwork(list)
}

// parsePlugin parses the content of a .conf file as a network with a single plugin.
func parsePlugin(data []byte) (*Network, error) {
	if err := checkSize(data); err != nil {
		return nil, err
	}
	plugin, err := libcni.NetworkPluginConfFromBytes(data)
	if err != nil {
		return nil, err
	}
	whole, err := json.Marshal(map[string]any{
		"name": plugin.Network.Name, "cniVersion": plugin.Network.CNIVersion, "plugins": []json.RawMessage{data},
	})
	if err != nil {
		return nil, err
	}
	list, err := libcni.NetworkConfFromBytes(whole)
	if err != nil {
		return nil, err
	}
	return newNetwork(list)
}

func parseList(data []byte) (*libcni.NetworkConfigList, error) {
	if err := checkSize(data); err != nil {
		return nil, err
	}
	return libcni.NetworkConfFromBytes(data)
}

func checkSize(data []byte) error {
	if len(data) > maxConfig {
		return fmt.Errorf("%d bytes exceed the limit of %d", len(data), maxConfig)
	}
	return nil
}

// newNetwork returns the network of a configuration list. It checks the list more strictly than libcni, which finds some
// errors only at the first ADD.
func newNetwork(list *libcni.NetworkConfigList) (*Network, error) {
	switch known := version.All.SupportedVersions(); {
	case !validName.MatchString(list.Name) || len(list.Name) > maxName:
		return nil, fmt.Errorf("name: %.*q must have up to %d letters, digits, dots, dashes and underscores", maxName, list.Name, maxName)
	case list.CNIVersion != "" && !slices.Contains(known, list.CNIVersion):
		return nil, fmt.Errorf("cniVersion: %.20q is none of %s", list.CNIVersion, strings.Join(known, ", "))
	case len(list.Plugins) == 0:
		return nil, errors.New("plugins: must not be empty")
	case len(list.Plugins) > maxPlugins:
		return nil, fmt.Errorf("plugins: %d of them exceed the limit of %d", len(list.Plugins), maxPlugins)
	}
	n := &Network{Name: list.Name, Version: list.CNIVersion, list: list}
	for i, p := range list.Plugins {
		if !validName.MatchString(p.Network.Type) || len(p.Network.Type) > maxName {
			return nil, fmt.Errorf("plugins[%d].type: %.*q is not a file name", i, maxName, p.Network.Type)
		}
		caps := maps.Clone(p.Network.Capabilities)
		maps.DeleteFunc(caps, func(_ string, wanted bool) bool { return !wanted })
		n.Plugins = append(n.Plugins, Plugin{Type: p.Network.Type, Capabilities: slices.Sorted(maps.Keys(caps))})
	}
	return n, nil
}

// appendPlugins returns a copy of list with more plugins, whose configurations come from files of their own.
func appendPlugins(list *libcni.NetworkConfigList, more [][]byte) (*libcni.NetworkConfigList, error) {
	if len(more) == 0 {
		return list, nil
	}
	var whole map[string]json.RawMessage
	if err := json.Unmarshal(list.Bytes, &whole); err != nil {
		return nil, err
	}
	var plugins []json.RawMessage
	for _, p := range list.Plugins {
		plugins = append(plugins, p.Bytes)
	}
	for _, p := range more {
		plugins = append(plugins, p)
	}
	data, err := json.Marshal(plugins)
	if err != nil {
		return nil, err
	}
	// the record of an attachment has the whole result, so that DEL need not read these files
	whole["plugins"], whole["loadOnlyInlinedPlugins"] = data, json.RawMessage("true")
	if data, err = json.Marshal(whole); err != nil {
		return nil, err
	}
	return parseList(data)
}

// ChooseNetworks returns the networks to which a pod is attached. The first is the network with the given name, or the
// first of networks if name is empty. Those after it in the list follow, up to count in total; a count below one means one.
func ChooseNetworks(networks []*Network, name string, count int) ([]*Network, error) {
	first := 0
	if name != "" {
		first = slices.IndexFunc(networks, func(n *Network) bool { return n.Name == name })
	}
	if first < 0 || first >= len(networks) {
		if name != "" {
			return nil, fmt.Errorf("%w: none is called %q", ErrNoNetwork, name)
		}
		return nil, ErrNoNetwork
	}
	return networks[first:min(len(networks), first+max(1, count))], nil
}
