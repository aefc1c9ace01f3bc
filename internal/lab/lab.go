// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
)

// The names of the images that every lab has. No registry serves them, so that pods must use the pull policy IfNotPresent or
// Never.
const (
	BusyboxImage = "nodeagent.test/busybox:1"
	PauseImage   = "nodeagent.test/pause:1"
)

// MainName is the name of the shared lab.
const MainName = "main"

// runBase is the directory for state and sockets of all labs on the machine.
const runBase = "/run/nodeagent-lab"

// Lab is a containerd with its network, images and registry.
type Lab struct {
	home   string // .lab directory of the checkout
	record labRecord
}

// labRecord is the content of lab.json, with which another process finds or removes the lab, even after a crash.
type labRecord struct {
	Name           string  `json:"name"`
	ID             string  `json:"id"` // 8 hex digits of a hash of home and name, for unique names on the machine
	Subnet         string  `json:"subnet"`
	Snapshotter    string  `json:"snapshotter"`
	OnDemand       bool    `json:"onDemand"` // stops after its last user
	Containerd     process `json:"containerd"`
	Registry       process `json:"registry"`
	RegistryHost   string  `json:"registryHost"`
	RegistryDigest string  `json:"registryDigest"`
}

// Endpoint returns the address of the lab's CRI socket in the notation of kubelet flags: unix:///path.
func (l *Lab) Endpoint() string { return "unix://" + l.socketPath() }

// Dir returns the directory for the configuration, logs and images of the lab.
func (l *Lab) Dir() string { return filepath.Join(l.home, "instances", l.record.Name) }

// StateDir returns the directory for the mounts, network namespaces and sockets of the lab.
func (l *Lab) StateDir() string { return filepath.Join(runBase, l.record.ID) }

// Bridge returns the name of the network bridge to which the pods are connected.
func (l *Lab) Bridge() string { return "nal-" + l.record.ID }

// Subnet returns the subnet from which pods get their addresses.
func (l *Lab) Subnet() netip.Prefix { return netip.MustParsePrefix(l.record.Subnet) }

// RegistryHost returns the address of the lab's image registry as HOST:PORT. The registry uses plain HTTP and accepts
// pushes.
func (l *Lab) RegistryHost() string { return l.record.RegistryHost }

// MirrorDir returns containerd's directory for registry mirrors. At each pull, containerd reads REGISTRY/hosts.toml in this
// directory. A test that needs a mirror must create the directory.
func (l *Lab) MirrorDir() string { return filepath.Join(l.Dir(), "certs.d") }

// RegistryImage returns the name of an image in the lab's registry, with a tag. containerd does not have the image until a
// test pulls it.
func (l *Lab) RegistryImage() string { return l.record.RegistryHost + "/busybox:1" }

// RegistryImageByDigest returns the name of the image that [Lab.RegistryImage] returns, with a digest instead of the tag.
func (l *Lab) RegistryImageByDigest() string { return l.record.RegistryDigest }

// ContainerdPID returns the process ID of containerd. Each [Lab.Restart] changes it.
func (l *Lab) ContainerdPID() int { return l.record.Containerd.PID }

// LogPath returns the path of containerd's log file.
func (l *Lab) LogPath() string { return filepath.Join(l.Dir(), "containerd.log") }

// BinDir returns the directory that contains containerd, runc, ctr, crane and the CNI plugins.
func (l *Lab) BinDir() string { return filepath.Join(l.home, "bin") }

func (l *Lab) socketPath() string { return filepath.Join(l.StateDir(), "containerd.sock") }

func (l *Lab) binPath(name string) string { return filepath.Join(l.BinDir(), name) }

func (l *Lab) recordPath() string { return filepath.Join(l.Dir(), "lab.json") }

// FindHome returns the directory .lab at the root of the checkout that contains the current working directory.
func FindHome() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for d := dir; ; d = filepath.Dir(d) {
		if _, err := os.Stat(filepath.Join(d, "hack", "lab")); err == nil {
			return filepath.Join(d, ".lab"), nil
		}
		if d == filepath.Dir(d) {
			return "", fmt.Errorf("find checkout above %s: no directory has hack/lab in it", dir)
		}
	}
}

// Open returns the lab called name in the .lab directory home, even if it does not run. If the lab does not exist, the error
// wraps [fs.ErrNotExist].
func Open(home, name string) (*Lab, error) {
	l := newLab(home, name)
	b, err := os.ReadFile(l.recordPath())
	if err != nil {
		return nil, fmt.Errorf("open lab %s: %w", name, err)
	}
	if err := json.Unmarshal(b, &l.record); err != nil {
		return nil, fmt.Errorf("open lab %s: parse %s: %w", name, l.recordPath(), err)
	}
	if want := newLab(home, name).record.ID; l.record.ID != want {
		return nil, fmt.Errorf("open lab %s: %s has id %q, want %q", name, l.recordPath(), l.record.ID, want)
	}
	return l, nil
}

// Instances returns the names of all labs in the .lab directory home, including labs that do not run.
func Instances(home string) ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(home, "instances"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

func newLab(home, name string) *Lab {
	sum := sha256.Sum256([]byte(home + "\x00" + name))
	return &Lab{home: home, record: labRecord{Name: name, ID: hex.EncodeToString(sum[:4])}}
}

// saveRecord writes l.record to lab.json atomically.
func (l *Lab) saveRecord() error {
	b, err := json.MarshalIndent(l.record, "", "\t")
	if err != nil {
		return err
	}
	tmp := l.recordPath() + ".tmp"
	if err := os.WriteFile(tmp, b, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, l.recordPath())
}

// pickSubnet returns a /22 subnet in 10.0.0.0/8 that overlaps no used address. The search starts at a subnet that depends on
// id.
func pickSubnet(id string, used []net.Addr) (netip.Prefix, error) {
	raw, err := hex.DecodeString(id)
	if err != nil || len(raw) != 4 {
		return netip.Prefix{}, fmt.Errorf("pick subnet: id %q is not 8 hex digits", id)
	}
	const blocks = 1 << 14 // number of /22 subnets in a /8
	// Two labs thus rarely pick the same subnet.
	first := binary.BigEndian.Uint32(raw) % blocks
	for i := range uint32(blocks) {
		block := (first + i) % blocks
		addr := binary.BigEndian.AppendUint32(nil, 10<<24|block<<10)
		p := netip.PrefixFrom(netip.AddrFrom4([4]byte(addr)), 22)
		if !overlapsAny(p, used) {
			return p, nil
		}
	}
	return netip.Prefix{}, errors.New("pick subnet: every /22 of 10.0.0.0/8 is in use")
}

func overlapsAny(p netip.Prefix, used []net.Addr) bool {
	for _, a := range used {
		if q, err := netip.ParsePrefix(a.String()); err == nil && p.Overlaps(q) {
			return true
		}
	}
	return false
}
