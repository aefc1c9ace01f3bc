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

// Names of the images that every lab has from the start. No registry serves them, so that a pod has to use them
// with the pull policy IfNotPresent or Never.
const (
	BusyboxImage = "nodeagent.test/busybox:1"
	PauseImage   = "nodeagent.test/pause:1"
)

// MainName is the name of the lab that tests share.
const MainName = "main"

// runBase holds state and sockets of every lab of the machine.
const runBase = "/run/nodeagent-lab"

// Lab is one containerd with its network, images and registry.
type Lab struct {
	home string // the .lab directory of the checkout
	rec  record
}

// record is what a lab keeps in lab.json, for other processes and for the time after a crash.
type record struct {
	Name           string  `json:"name"`
	ID             string  `json:"id"` // 8 hex digits of home and name: makes names of the machine unique
	Subnet         string  `json:"subnet"`
	Snapshotter    string  `json:"snapshotter"`
	OnDemand       bool    `json:"onDemand"` // ends with its last user
	Containerd     process `json:"containerd"`
	Registry       process `json:"registry"`
	RegistryHost   string  `json:"registryHost"`
	RegistryDigest string  `json:"registryDigest"`
}

// Endpoint returns the address of the CRI as a kubelet flag has it: unix:///path.
func (l *Lab) Endpoint() string { return "unix://" + l.socket() }

// Dir returns the directory with the configuration, the logs and the stored images of the lab.
func (l *Lab) Dir() string { return filepath.Join(l.home, "instances", l.rec.Name) }

// StateDir returns the directory under which the lab keeps its mounts, network namespaces and sockets.
func (l *Lab) StateDir() string { return filepath.Join(runBase, l.rec.ID) }

// Bridge returns the name of the bridge that the pods are attached to.
func (l *Lab) Bridge() string { return "nal-" + l.rec.ID }

// Subnet returns the addresses that pods of this lab get.
func (l *Lab) Subnet() netip.Prefix { return netip.MustParsePrefix(l.rec.Subnet) }

// RegistryHost returns host and port of the registry of the lab. It speaks plain HTTP and accepts pushes.
func (l *Lab) RegistryHost() string { return l.rec.RegistryHost }

// MirrorDir returns the directory where containerd looks up other addresses of registries, in REGISTRY/hosts.toml, at each pull. It
// does not exist: a test that needs a mirror makes it.
func (l *Lab) MirrorDir() string { return filepath.Join(l.Dir(), "certs.d") }

// RegistryImage returns an image by tag that is in the registry and, until a test pulls it, not in the runtime.
func (l *Lab) RegistryImage() string { return l.rec.RegistryHost + "/busybox:1" }

// RegistryImageByDigest returns the same image as RegistryImage, by digest.
func (l *Lab) RegistryImageByDigest() string { return l.rec.RegistryDigest }

// ContainerdPID returns the process id of containerd, which changes with every [Lab.Restart].
func (l *Lab) ContainerdPID() int { return l.rec.Containerd.PID }

// LogPath returns the log file of containerd.
func (l *Lab) LogPath() string { return filepath.Join(l.Dir(), "containerd.log") }

// BinDir returns the directory with containerd, runc, ctr, crane and the CNI plugins.
func (l *Lab) BinDir() string { return filepath.Join(l.home, "bin") }

func (l *Lab) socket() string { return filepath.Join(l.StateDir(), "containerd.sock") }

func (l *Lab) bin(name string) string { return filepath.Join(l.BinDir(), name) }

func (l *Lab) recordPath() string { return filepath.Join(l.Dir(), "lab.json") }

// FindHome returns the .lab directory of the checkout that the working directory is in.
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

// Open returns the lab of that name under home, running or not. It fails with [fs.ErrNotExist] where there is
// none.
func Open(home, name string) (*Lab, error) {
	l := newLab(home, name)
	b, err := os.ReadFile(l.recordPath())
	if err != nil {
		return nil, fmt.Errorf("open lab %s: %w", name, err)
	}
	if err := json.Unmarshal(b, &l.rec); err != nil {
		return nil, fmt.Errorf("open lab %s: parse %s: %w", name, l.recordPath(), err)
	}
	if want := newLab(home, name).rec.ID; l.rec.ID != want {
		return nil, fmt.Errorf("open lab %s: %s has id %q, want %q", name, l.recordPath(), l.rec.ID, want)
	}
	return l, nil
}

// Instances returns the names of the labs under home, running or not.
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
	return &Lab{home: home, rec: record{Name: name, ID: hex.EncodeToString(sum[:4])}}
}

func (l *Lab) save() error {
	b, err := json.MarshalIndent(l.rec, "", "\t")
	if err != nil {
		return err
	}
	tmp := l.recordPath() + ".tmp"
	if err := os.WriteFile(tmp, b, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, l.recordPath())
}

// pickSubnet returns a /22 of 10.0.0.0/8 that overlaps no address in use and depends on id first.
func pickSubnet(id string, used []net.Addr) (netip.Prefix, error) {
	raw, err := hex.DecodeString(id)
	if err != nil || len(raw) != 4 {
		return netip.Prefix{}, fmt.Errorf("pick subnet: id %q is not 8 hex digits", id)
	}
	const blocks = 1 << 14 // of /22 in a /8
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
