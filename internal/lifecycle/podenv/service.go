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

// apiService is the service of the API server, whose variables all pods get.
const apiService = "kubernetes"

// hasServiceLinks reports whether pod gets variables for the services of its namespace.
func hasServiceLinks(pod *corev1.Pod) bool {
	return pod.Spec.EnableServiceLinks == nil || *pod.Spec.EnableServiceLinks
}

// serviceEnv returns the variables for the service of the API server and, with service links, of the pod's namespace.
// Source: getServiceEnvVarMap in pkg/kubelet/kubelet_pods.go and pkg/kubelet/envvars.
func serviceEnv(pod *corev1.Pod, services []*corev1.Service) []cri.EnvVar {
	byName := make(map[string]*corev1.Service)
	for _, s := range services {
		own := s.Namespace == pod.Namespace && hasServiceLinks(pod)
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

// setService sets the variables of a service: NAME_SERVICE_HOST, NAME_SERVICE_PORT and the variables of Docker links.
func (e *Environment) setService(service *corev1.Service) {
	ip, prefix := service.Spec.ClusterIP, variableName(service.Name)
	e.setValue(prefix+"_SERVICE_HOST", ip)
	e.setValue(prefix+"_SERVICE_PORT", strconv.Itoa(int(service.Spec.Ports[0].Port)))
	for _, p := range service.Spec.Ports {
		if p.Name != "" {
			e.setValue(prefix+"_SERVICE_PORT_"+variableName(p.Name), strconv.Itoa(int(p.Port)))
		}
	}
	for i, p := range service.Spec.Ports {
		port, proto := strconv.Itoa(int(p.Port)), strings.ToLower(string(cmp.Or(p.Protocol, corev1.ProtocolTCP)))
		url := proto + "://" + net.JoinHostPort(ip, port)
		if i == 0 {
			e.setValue(prefix+"_PORT", url)
		}
		link := prefix + "_PORT_" + port + "_" + strings.ToUpper(proto)
		e.setValue(link, url)
		e.setValue(link+"_PROTO", proto)
		e.setValue(link+"_PORT", port)
		e.setValue(link+"_ADDR", ip)
	}
}

// variableName returns s in upper case, with underscores instead of dashes.
func variableName(s string) string { return strings.ToUpper(strings.ReplaceAll(s, "-", "_")) }
