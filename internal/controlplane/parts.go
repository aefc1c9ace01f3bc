// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"os"
	"path/filepath"
	"strconv"
)

// Service addresses. There is no kube-proxy, so that no connection to them works.
const (
	serviceRange   = "10.96.0.0/16"
	firstServiceIP = "10.96.0.1"
)

// issuer is the issuer of service account tokens: the usual name of the API server in a cluster.
const issuer = "https://kubernetes.default.svc.cluster.local"

// credentials has the paths of the files that the components share.
type credentials struct {
	caCert, caKey         string
	tlsCert, tlsKey       string // serving certificate of all components
	tokenKey, tokenPub    string
	kubeletCert           string // client certificate of the API server for agents
	kubeletKey            string
	controller, scheduler string // kubeconfigs of controller manager and scheduler
}

// planParts selects the ports of all components, writes the files of the components, and sets their command-line arguments.
// It starts no process.
func (p *Plane) planParts(opts Options) error {
	ports, err := freePorts(5)
	if err != nil {
		return err
	}
	authority, err := newAuthority("nodeagent-test")
	if err != nil {
		return err
	}
	p.Access = &Access{url: loopbackURL("https", ports[0]), ca: authority, dir: p.dir}
	if err := p.openAdmin(); err != nil {
		return err
	}
	c, err := p.writeCredentials()
	if err != nil {
		return err
	}
	etcd := loopbackURL("http", ports[1])
	p.parts = []*program{p.newEtcd(etcd, loopbackURL("http", ports[2])), p.newAPIServer(ports[0], etcd, c)}
	p.parts[0].checkHealth = p.newHealthCheck("http", ports[1], "/health")
	p.parts[1].checkHealth = p.Admin().CheckReady
	front, err := p.writeFrontProxy()
	if err != nil {
		return err
	}
	p.parts[1].args = append(p.parts[1].args, front...)
	if opts.Audit {
		more, err := p.writeAudit()
		if err != nil {
			return err
		}
		p.parts[1].args = append(p.parts[1].args, more...)
	}
	p.parts[1].args = append(p.parts[1].args, opts.APIServerArgs...)
	if opts.ControllerManager {
		part := p.newControllerManager(ports[3], c)
		part.args = append(part.args, opts.ControllerManagerArgs...)
		p.parts = append(p.parts, part)
	}
	if opts.Scheduler {
		part := p.newScheduler(ports[4], c)
		part.args = append(part.args, opts.SchedulerArgs...)
		p.parts = append(p.parts, part)
	}
	return nil
}

// writeCredentials writes certificates, keys and kubeconfigs, and returns their paths.
func (p *Plane) writeCredentials() (c credentials, err error) {
	caKey, err := p.ca.keyPEM()
	if err != nil {
		return c, err
	}
	if c.caCert, c.caKey, err = (keyPair{p.ca.pem, caKey}).writeFiles(p.dir, "ca"); err != nil {
		return c, err
	}
	server, err := p.ca.serverPair(APIServer)
	if err != nil {
		return c, err
	}
	if c.tlsCert, c.tlsKey, err = server.writeFiles(p.dir, "server"); err != nil {
		return c, err
	}
	kubelet, err := p.ca.clientPair("kube-apiserver-kubelet-client", "system:masters")
	if err != nil {
		return c, err
	}
	if c.kubeletCert, c.kubeletKey, err = kubelet.writeFiles(p.dir, "kubelet-client"); err != nil {
		return c, err
	}
	private, public, err := newSigningKey()
	if err != nil {
		return c, err
	}
	c.tokenKey, c.tokenPub = filepath.Join(p.dir, tokenKeyName), filepath.Join(p.dir, "sa.pub")
	if err := os.WriteFile(c.tokenKey, private, 0o600); err != nil {
		return c, err
	}
	if err := os.WriteFile(c.tokenPub, public, 0o600); err != nil {
		return c, err
	}
	if c.controller, err = p.Kubeconfig("system:kube-controller-manager"); err != nil {
		return c, err
	}
	c.scheduler, err = p.Kubeconfig("system:kube-scheduler")
	return c, err
}

// newEtcd returns the etcd of the control plane with its URLs for clients and for other members.
func (p *Plane) newEtcd(clientURL, peerURL string) *program {
	return p.newProgram(Etcd, buildFlags(
		"name", "default", "data-dir", filepath.Join(p.dir, "etcd"), "unsafe-no-fsync", "true", "log-level", "warn",
		"listen-client-urls", clientURL, "advertise-client-urls", clientURL,
		"listen-peer-urls", peerURL, "initial-advertise-peer-urls", peerURL, "initial-cluster", "default="+peerURL,
	))
}

// newAPIServer returns the API server with the flags that kubeadm sets, as far as one machine needs them.
func (p *Plane) newAPIServer(port int, etcdURL string, files credentials) *program {
	return p.newProgram(APIServer, buildFlags(
		// The service kubernetes has no endpoint, because an endpoint must not have a loopback address.
		"etcd-servers", etcdURL, "bind-address", "127.0.0.1", "advertise-address", "127.0.0.1", "endpoint-reconciler-type", "none",
		"secure-port", strconv.Itoa(port), "tls-cert-file", files.tlsCert, "tls-private-key-file", files.tlsKey, "client-ca-file", files.caCert,
		"authorization-mode", "Node,RBAC", "enable-admission-plugins", "NodeRestriction", "allow-privileged", "true",
		"enable-bootstrap-token-auth", "true", "service-cluster-ip-range", serviceRange,
		"service-account-issuer", issuer, "service-account-key-file", files.tokenPub, "service-account-signing-key-file", files.tokenKey,
		"kubelet-client-certificate", files.kubeletCert, "kubelet-client-key", files.kubeletKey,
		"kubelet-preferred-address-types", "InternalIP,ExternalIP,Hostname",
	))
}

func (p *Plane) newControllerManager(port int, files credentials) *program {
	part := p.newProgram(ControllerManager, buildFlags(
		"kubeconfig", files.controller, "leader-elect", "false", "bind-address", "127.0.0.1", "secure-port", strconv.Itoa(port),
		"tls-cert-file", files.tlsCert, "tls-private-key-file", files.tlsKey, "use-service-account-credentials", "true",
		"service-account-private-key-file", files.tokenKey, "root-ca-file", files.caCert,
		"cluster-signing-cert-file", files.caCert, "cluster-signing-key-file", files.caKey, "service-cluster-ip-range", serviceRange,
	))
	part.checkHealth = p.newHealthCheck("https", port, "/healthz")
	return part
}

func (p *Plane) newScheduler(port int, files credentials) *program {
	part := p.newProgram(Scheduler, buildFlags(
		"kubeconfig", files.scheduler, "leader-elect", "false", "bind-address", "127.0.0.1", "secure-port", strconv.Itoa(port),
		"tls-cert-file", files.tlsCert, "tls-private-key-file", files.tlsKey,
	))
	part.checkHealth = p.newHealthCheck("https", port, "/readyz")
	return part
}

func (p *Plane) newProgram(name string, args []string) *program {
	return &program{name: name, path: filepath.Join(p.bin, name), dir: p.dir, args: args}
}
