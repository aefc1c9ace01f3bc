// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Cluster is a control plane as kubeadm has prepared it. Somebody else runs it: whoever is given its manifests.
type Cluster struct {
	*Access

	// Root is the directory that stands for / of the host in the manifests: certificates in etc/kubernetes/pki, data of etcd in
	// var/lib/etcd.
	Root string
	// Manifests are the static pods by file name, such as etcd.yaml.
	Manifests map[string]string
}

// kubeadmTimeout is for one phase. They take a second, the certificates some more.
const kubeadmTimeout = 2 * time.Minute

// phases are those of `kubeadm init` that write the manifests and what these need.
func kubeadmPhases() [][]string {
	return [][]string{{"certs", "all"}, {"kubeconfig", "all"}, {"etcd", "local"}, {"control-plane", "all"}}
}

// PrepareKubeadm prepares a control plane for the node of that name, which the static pods run on. The address is one that the host
// has, and no loopback address: kubeadm refuses those. The test is skipped where the programs have not been built, and without
// root: kubeadm changes its root directory.
func PrepareKubeadm(t testing.TB, node string, advertise netip.Addr) *Cluster {
	t.Helper()
	if os.Geteuid() != 0 {
		skipOrFail(t, "kubeadm takes root")
	}
	c, err := prepareCluster(t.Context(), filepath.Join(RequirePrograms(t, kubeadm), kubeadm), t.TempDir(), node, advertise)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func prepareCluster(ctx context.Context, program, root, node string, advertise netip.Addr) (*Cluster, error) {
	free, err := freePorts(1 + len(fixedPorts()))
	if err != nil {
		return nil, err
	}
	server, ports := free[0], map[string]string{}
	for i, port := range fixedPorts() {
		ports[port] = strconv.Itoa(free[i+1])
	}
	// kubeadm works in a root of its own: it writes to fixed places of the host.
	text := fmt.Sprintf(kubeadmConfig, advertise, server, node, Version, repository, ports[controllerPort], ports[schedulerPort])
	if err := os.WriteFile(filepath.Join(root, "kubeadm.yaml"), []byte(text), 0o600); err != nil {
		return nil, err
	}
	for _, phase := range kubeadmPhases() {
		if err := runPhase(ctx, program, root, phase); err != nil {
			return nil, err
		}
	}
	c := &Cluster{Root: root, Manifests: map[string]string{}}
	if err := c.adaptManifests(ports); err != nil {
		return nil, err
	}
	pki := filepath.Join(root, "etc", "kubernetes", "pki")
	authority, err := readAuthority(filepath.Join(pki, "ca.crt"), filepath.Join(pki, "ca.key"))
	if err != nil {
		return nil, err
	}
	c.Access = &Access{url: "https://" + netip.AddrPortFrom(advertise, uint16(server)).String(), ca: authority, dir: root}
	return c, c.openAdmin()
}

func runPhase(ctx context.Context, program, root string, phase []string) error {
	ctx, cancel := context.WithTimeout(ctx, kubeadmTimeout)
	defer cancel()
	args := append([]string{"init", "phase"}, phase...)
	cmd := exec.CommandContext(ctx, program, append(args, "--rootfs", root, "--config", "/kubeadm.yaml")...)
	cmd.WaitDelay = time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("run kubeadm %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}

// kubeadmConfig asks for kubeadm's defaults, but for ports that can be chosen here. The container runtime is only named.
const kubeadmConfig = `apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
localAPIEndpoint: {advertiseAddress: %q, bindPort: %d}
nodeRegistration: {name: %q, criSocket: "unix:///run/containerd/containerd.sock"}
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: %s
imageRepository: %s
controllerManager: {extraArgs: [{name: secure-port, value: %q}]}
scheduler: {extraArgs: [{name: secure-port, value: %q}]}
`

// The ports of which kubeadm has its own opinion. Beside these it has that of the API server, which it can be told.
const (
	controllerPort = "10257"
	schedulerPort  = "10259"
)

// fixedPorts returns them with those of etcd: for clients, for peers, for probes.
func fixedPorts() []string { return []string{"2379", "2380", "2381", controllerPort, schedulerPort} }

// adapt reads the manifests and puts other ports and paths of the host into them.
func (c *Cluster) adaptManifests(ports map[string]string) error {
	dir := filepath.Join(c.Root, "etc", "kubernetes", "manifests")
	for _, name := range []string{Etcd, APIServer, ControllerManager, Scheduler} {
		text, err := os.ReadFile(filepath.Join(dir, name+".yaml"))
		if err != nil {
			return err
		}
		c.Manifests[name+".yaml"] = adaptManifest(string(text), c.Root, ports)
	}
	return nil
}

// hostPath matches the path of a volume on the host, as kubeadm writes it.
var hostPathPattern = regexp.MustCompile(`(?m)^( *(?:- )?hostPath:\n +path: )/`)

// number matches what may be a port.
var portPattern = regexp.MustCompile(`\b[0-9]{4,5}\b`)

func adaptManifest(manifest, root string, ports map[string]string) string {
	manifest = portPattern.ReplaceAllStringFunc(manifest, func(found string) string {
		if port, ok := ports[found]; ok {
			return port
		}
		return found
	})
	return hostPathPattern.ReplaceAllString(manifest, "${1}"+strings.ReplaceAll(root, "$", "$$")+"/")
}
