// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"
)

// MetricsServer is the name of the program that serves the API metrics.k8s.io for `kubectl top`. It is no part of Kubernetes:
// tools/metrics/go.mod has its version.
const MetricsServer = "metrics-server"

const (
	metricsUser = "metrics-server"
	rbac        = "rbac.authorization.k8s.io"
	rbacPath    = "/apis/" + rbac + "/v1"
)

// writeFrontProxy creates the client certificate of the API server for extension servers, such as a metrics-server, and
// returns its flags.
func (p *Plane) writeFrontProxy() (flags []string, err error) {
	const user = "front-proxy-client"
	authority, err := newAuthority("front-proxy-ca")
	if err != nil {
		return nil, err
	}
	caKey, err := authority.keyPEM()
	if err != nil {
		return nil, err
	}
	ca, _, err := keyPair{authority.pem, caKey}.writeFiles(p.dir, "front-proxy-ca")
	if err != nil {
		return nil, err
	}
	client, err := authority.clientPair(user)
	if err != nil {
		return nil, err
	}
	cert, key, err := client.writeFiles(p.dir, user)
	return buildFlags(
		"requestheader-client-ca-file", ca, "requestheader-allowed-names", user,
		"requestheader-username-headers", "X-Remote-User", "requestheader-group-headers", "X-Remote-Group",
		"requestheader-extra-headers-prefix", "X-Remote-Extra-", "proxy-client-cert-file", cert, "proxy-client-key-file", key,
	), err
}

// StartMetricsServer runs a metrics-server and registers its API. It queries all nodes every ten seconds; container metrics
// are available after two queries. It only connects to nodes with a serving certificate of the cluster's authority. Call
// StartMetricsServer once; [Plane.Close] stops the metrics-server.
func (p *Plane) StartMetricsServer(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, DefaultTimeout)
	defer cancel()
	ports, err := freePorts(1)
	if err != nil {
		return err
	}
	config, err := p.Kubeconfig(metricsUser)
	if err != nil {
		return err
	}
	for _, o := range p.metricsObjects(ports[0]) {
		if err := p.Admin().Do(ctx, http.MethodPost, o.path, o.object, nil); err != nil {
			return fmt.Errorf("prepare %s: %w", MetricsServer, err)
		}
	}
	for _, role := range []string{"system:auth-delegator", "system:metrics-server"} {
		if err := p.BindClusterRole(ctx, role, "User", metricsUser); err != nil {
			return err
		}
	}
	part := p.newProgram(MetricsServer, buildFlags(
		"kubeconfig", config, "authentication-kubeconfig", config, "authorization-kubeconfig", config,
		"bind-address", "127.0.0.1", "secure-port", strconv.Itoa(ports[0]),
		"tls-cert-file", filepath.Join(p.dir, "server.crt"), "tls-private-key-file", filepath.Join(p.dir, "server.key"),
		"kubelet-use-node-status-port", "true", "kubelet-preferred-address-types", "InternalIP", "kubelet-certificate-authority", filepath.Join(p.dir, "ca.crt"),
		"metric-resolution", "10s", "kubelet-request-timeout", "5s",
	))
	part.checkHealth = p.newHealthCheck("https", ports[0], "/livez")
	p.parts = append(p.parts, part)
	return p.startPart(ctx, part)
}

// apiObject is an object and the path to create it at.
type apiObject struct {
	path   string
	object map[string]any
}

// metricsObjects returns the API registration and the roles of a metrics-server on this port of the loopback interface.
func (p *Plane) metricsObjects(port int) []apiObject {
	const namespace = "kube-system"
	named := func(name string) map[string]any { return map[string]any{"name": name} }
	return []apiObject{
		{rbacPath + "/clusterroles", map[string]any{
			"apiVersion": rbac + "/v1", "kind": "ClusterRole", "metadata": named("system:metrics-server"),
			"rules": []any{
				map[string]any{"apiGroups": []string{""}, "resources": []string{"nodes/metrics"}, "verbs": []string{"get"}},
				map[string]any{"apiGroups": []string{""}, "resources": []string{"pods", "nodes"}, "verbs": []string{"get", "list", "watch"}},
			},
		}},
		{rbacPath + "/namespaces/" + namespace + "/rolebindings", map[string]any{
			"apiVersion": rbac + "/v1", "kind": "RoleBinding", "metadata": named("metrics-server-auth-reader"),
			"roleRef":  map[string]any{"apiGroup": rbac, "kind": "Role", "name": "extension-apiserver-authentication-reader"},
			"subjects": []any{map[string]any{"apiGroup": rbac, "kind": "User", "name": metricsUser}},
		}},
		{"/api/v1/namespaces/" + namespace + "/services", map[string]any{
			"apiVersion": "v1", "kind": "Service", "metadata": named(MetricsServer),
			// An endpoint must not have a loopback address.
			"spec": map[string]any{"type": "ExternalName", "externalName": "localhost"},
		}},
		{"/apis/apiregistration.k8s.io/v1/apiservices", map[string]any{
			"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": named("v1beta1.metrics.k8s.io"),
			"spec": map[string]any{
				"group": "metrics.k8s.io", "version": "v1beta1", "groupPriorityMinimum": 100, "versionPriority": 100, "caBundle": p.CA(),
				"service": map[string]any{"name": MetricsServer, "namespace": namespace, "port": port},
			},
		}},
	}
}
