// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// configText is what differs from containerd's own defaults: where things are, and nothing of it outside of the
// lab. Network namespaces are mounted under the state directory rather than /run/netns, where `ip netns add`
// would make them impossible to remove. NRI is off because its socket has one fixed place on the machine.
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

// writeConfig writes the configuration of containerd and of the pod network.
func (l *Lab) writeConfig(restrictOOMScore, portMappings bool) error {
	conf := filepath.Join(l.Dir(), "cni", "net.d")
	text := fmt.Sprintf(configText,
		filepath.Join(l.Dir(), "root"), filepath.Join(l.StateDir(), "state"), filepath.Join(l.Dir(), "tmp"),
		l.socket(), l.socket()+".ttrpc", filepath.Join(l.StateDir(), "s"),
		filepath.Join(l.Dir(), "opt"), filepath.Join(l.Dir(), "opt", "verifiers"),
		l.rec.Snapshotter, PauseImage, restrictOOMScore,
		l.BinDir(), conf,
		l.bin("containerd-shim-runc-v2"), l.bin("runc"), l.runcRoot(), l.MirrorDir())
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

// networkConfig is the CNI configuration: a bridge that the host has an address on, so that tests reach the pods.
func (l *Lab) networkConfig(portMappings bool) map[string]any {
	plugins := []map[string]any{{
		"type":      "bridge",
		"bridge":    l.Bridge(),
		"isGateway": true,
		"ipam": map[string]any{
			"type":    "host-local",
			"dataDir": l.addressDir(),
			"ranges":  [][]map[string]string{{{"subnet": l.rec.Subnet}}},
			"routes":  []map[string]string{{"dst": "0.0.0.0/0"}},
		},
	}}
	if portMappings {
		plugins = append(plugins, map[string]any{"type": "portmap", "capabilities": map[string]bool{"portMappings": true}})
	}
	return map[string]any{"cniVersion": cniVersion, "name": l.network(), "plugins": plugins}
}

const cniVersion = "1.1.0"

// network is the name of the pod network: the traces it leaves on the machine tell by it whose they are.
func (l *Lab) network() string { return "lab-" + l.rec.ID }

func (l *Lab) configPath() string { return filepath.Join(l.Dir(), "config.toml") }

// runcRoot is where runc keeps the state of the containers that the CRI made.
func (l *Lab) runcRoot() string { return filepath.Join(l.StateDir(), "runc") }

// addressDir is where host-local keeps one file for each address in use.
func (l *Lab) addressDir() string { return filepath.Join(l.Dir(), "cni", "addresses") }
