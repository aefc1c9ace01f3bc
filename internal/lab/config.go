// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// configText has the settings that differ from containerd's defaults: all paths are inside the lab. Network namespaces are
// mounted in the state directory, because `ip netns add` would make those in /run/netns impossible to remove. NRI is disabled,
// because its socket has a fixed path.
const configText = `version = 4
root = %[1]q
state = %[2]q
temp = %[3]q
imports = []

[plugins.'io.containerd.server.v1.grpc']
address = %[4]q
[plugins.'io.containerd.server.v1.ttrpc']
address = %[5]q
[plugins.'io.containerd.shim.v1.manager']
socket_dir = %[6]q
[plugins.'io.containerd.internal.v1.opt']
path = %[7]q
[plugins.'io.containerd.image-verifier.v1.bindir']
bin_dir = %[8]q
[plugins.'io.containerd.nri.v1.nri']
disable = true

[plugins.'io.containerd.cri.v1.images']
snapshotter = %[9]q
use_local_image_pull = true
[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = %[10]q
[plugins.'io.containerd.cri.v1.images'.registry]
config_path = %[17]q

[plugins.'io.containerd.cri.v1.runtime']
restrict_oom_score_adj = %[11]t
netns_mounts_under_state_dir = true
[plugins.'io.containerd.cri.v1.runtime'.cni]
bin_dirs = [%[12]q]
conf_dir = %[13]q
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
runtime_type = 'io.containerd.runc.v2'
runtime_path = %[14]q
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
BinaryName = %[15]q
Root = %[16]q
SystemdCgroup = false
`

// writeConfig writes the configuration files of containerd and of the pod network. With portMappings, pods can have host
// ports.
func (l *Lab) writeConfig(restrictOOMScore, portMappings bool) error {
	conf := filepath.Join(l.Dir(), "cni", "net.d")
	// With restrictOOMScore, containerd does not lower OOM scores below its own, which the host may forbid.
	text := fmt.Sprintf(configText,
		filepath.Join(l.Dir(), "root"), filepath.Join(l.StateDir(), "state"), filepath.Join(l.Dir(), "tmp"),
		l.socketPath(), l.socketPath()+".ttrpc", filepath.Join(l.StateDir(), "s"),
		filepath.Join(l.Dir(), "opt"), filepath.Join(l.Dir(), "opt", "verifiers"),
		l.record.Snapshotter, PauseImage, restrictOOMScore,
		l.BinDir(), conf,
		l.binPath("containerd-shim-runc-v2"), l.binPath("runc"), l.runcRoot(), l.MirrorDir())
	if err := os.MkdirAll(conf, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(l.configPath(), []byte(text), 0o600); err != nil {
		return err
	}
	list, err := json.MarshalIndent(l.networkConfig(portMappings), "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(conf, "10-lab.conflist"), list, 0o600)
}

// networkConfig returns the CNI configuration of the pod network: a bridge and, with portMappings, the plugin portmap.
func (l *Lab) networkConfig(portMappings bool) map[string]any {
	plugins := []map[string]any{{
		"type":   "bridge",
		"bridge": l.Bridge(),
		// The bridge gets an IP address, so that tests on the host can connect to pods.
		"isGateway": true,
		"ipam": map[string]any{
			"type":    "host-local",
			"dataDir": l.addressDir(),
			"ranges":  [][]map[string]string{{{"subnet": l.record.Subnet}}},
			"routes":  []map[string]string{{"dst": "0.0.0.0/0"}},
		},
	}}
	if portMappings {
		plugins = append(plugins, map[string]any{"type": "portmap", "capabilities": map[string]bool{"portMappings": true}})
	}
	return map[string]any{"cniVersion": cniVersion, "name": l.networkName(), "plugins": plugins}
}

const cniVersion = "1.1.0"

// networkName returns the name of the pod network, by which [Lab.Down] finds the CNI results and firewall rules of the lab.
func (l *Lab) networkName() string { return "lab-" + l.record.ID }

func (l *Lab) configPath() string { return filepath.Join(l.Dir(), "config.toml") }

// runcRoot returns the directory in which runc stores the states of the lab's containers.
func (l *Lab) runcRoot() string { return filepath.Join(l.StateDir(), "runc") }

// addressDir returns the directory in which the CNI plugin host-local stores one file per assigned IP address.
func (l *Lab) addressDir() string { return filepath.Join(l.Dir(), "cni", "addresses") }
