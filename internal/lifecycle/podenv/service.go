// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podenv

import (
	"cmp"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/cri"
)

// apiService is the service of the API server, which has variables in pods of all namespaces.
const apiService = "kubernetes"

// linked reports whether a pod has variables of the services in its namespace.
func linked(pod *corev1.Pod) bool {
	return pod.Spec.EnableServiceLinks == nil || *pod.Spec.EnableServiceLinks
}

// serviceEnv returns the variables with the addresses of services: those of the pod's namespace if it wants that, and in
// any case that of the API server, unless its own namespace has one of that name. Services without an address are left
// out (kubelet_pods.go, getServiceEnvVarMap; pkg/kubelet/envvars).
func serviceEnv(pod *corev1.Pod, services []*corev1.Service) []cri.EnvVar {
	byName := make(map[string]*corev1.Service)
	for _, s := range services {
		own := s.Namespace == pod.Namespace && linked(pod)
		api := s.Namespace == metav1.NamespaceDefault && s.Name == apiService
		_, taken := byName[s.Name]
		if s.Spec.ClusterIP == "" || s.Spec.ClusterIP == corev1.ClusterIPNone || len(s.Spec.Ports) == 0 {
			continue
		}
		if own || api && !taken {
			byName[s.Name] = s
		}
	}
	env := newEnvironment(nil)
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		env.setService(byName[name])
	}
	return env.List()
}

// setService sets the variables of a service with an address: those of Kubernetes, then those of Docker's links. The
// names of services and ports can make the same variable; the last one counts.
func (e *Environment) setService(s *corev1.Service) {
	ip, prefix := s.Spec.ClusterIP, envName(s.Name)
	e.set(prefix+"_SERVICE_HOST", ip)
	e.set(prefix+"_SERVICE_PORT", strconv.Itoa(int(s.Spec.Ports[0].Port)))
	for _, p := range s.Spec.Ports {
		if p.Name != "" {
			e.set(prefix+"_SERVICE_PORT_"+envName(p.Name), strconv.Itoa(int(p.Port)))
		}
	}
	for i, p := range s.Spec.Ports {
		port, proto := strconv.Itoa(int(p.Port)), strings.ToLower(string(cmp.Or(p.Protocol, corev1.ProtocolTCP)))
		url := proto + "://" + net.JoinHostPort(ip, port)
		if i == 0 {
			e.set(prefix+"_PORT", url)
		}
		link := prefix + "_PORT_" + port + "_" + strings.ToUpper(proto)
		e.set(link, url)
		e.set(link+"_PROTO", proto)
		e.set(link+"_PORT", port)
		e.set(link+"_ADDR", ip)
	}
}

func envName(s string) string { return strings.ToUpper(strings.ReplaceAll(s, "-", "_")) }
