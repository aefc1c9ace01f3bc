// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// imageScenarios test images from registries.
func imageScenarios() []podScenario {
	return []podScenario{
		{
			name: "changed image replaces the container",
			pod:  func(h *host) *corev1.Pod { return h.newPod(h.sh("main", h.countInstances("main")+runUntilTerm)) },
			act: func(h *host) {
				h.awaitLogged("main: life 1")
				h.change(func(pod *corev1.Pod) { pod.Spec.Containers[0].Image = h.registry + "/busybox:1" })
				h.awaitLogged("main: life 2")
			},
			end:    "Running, main: ready x1",
			logged: []string{"main: life 1", "main: term", "main: life 2"},
		},
		{
			name: "images are not found",
			pod: func(h *host) *corev1.Pod {
				never := h.sh("never", "echo up")
				never.Image, never.ImagePullPolicy = "nodeagent.test/none:1", corev1.PullNever
				missing := h.sh("missing", "echo up")
				missing.Image = h.registry + "/none:1"
				return h.newPod(missing, never)
			},
			act: func(h *host) {
				h.awaitOnce("Pending, missing: ErrImagePull, never: ErrImageNeverPull")
				h.awaitOnce("Pending, missing: ImagePullBackOff, never: ErrImageNeverPull")
			},
		},
		credentialScenario(),
		pullScenario(),
	}
}

// credentialScenario is an image that a registry returns only with the credentials of a secret, which is created later.
func credentialScenario() podScenario {
	const password = "sesame"
	var address string
	return podScenario{
		name: "image needs credentials",
		pod: func(h *host) *corev1.Pod {
			registry := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
				r.SetURL(&url.URL{Scheme: "http", Host: h.registry})
			}}
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if _, given, _ := r.BasicAuth(); given != password {
					w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
					w.WriteHeader(http.StatusUnauthorized)
					return
				}
				registry.ServeHTTP(w, r)
			}))
			h.t.Cleanup(server.Close)
			address = strings.TrimPrefix(server.URL, "http://")
			main := h.sh("main", exitOnTerm+"echo up; "+sleepForever)
			main.Image = address + "/busybox:1"
			pod := h.newPod(main)
			pod.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "late"}}
			return pod
		},
		act: func(h *host) {
			h.awaitOnce("Pending, main: ErrImagePull")
			login := base64.StdEncoding.EncodeToString([]byte("somebody:" + password))
			require.NoError(h.t, h.objects.PutSecret(&corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "late"},
				Type:       corev1.SecretTypeDockerConfigJson,
				Data: map[string][]byte{
					corev1.DockerConfigJsonKey: fmt.Appendf(nil, `{"auths":{%q:{"auth":%q}}}`, address, login),
				},
			}))
			h.awaitLogged("main: up")
		},
		end:    "Running, main: ready",
		logged: []string{"main: up"},
	}
}

// pullScenario is a pod that is deleted while its image is pulled from a registry that does not respond.
func pullScenario() podScenario {
	asked, left := make(chan struct{}, 100), make(chan struct{}, 100)
	return podScenario{
		name: "pod is deleted during a pull",
		pod: func(h *host) *corev1.Pod {
			server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				asked <- struct{}{}
				<-r.Context().Done()
				left <- struct{}{}
			}))
			h.t.Cleanup(server.Close)
			main := h.sh("main", "echo up")
			main.Image = strings.TrimPrefix(server.URL, "http://") + "/never:1"
			return h.newPod(main)
		},
		act: func(h *host) {
			<-asked
			h.await("Pending, main: ContainerCreating")
			h.set(nil)
			began := time.Now()
			h.awaitRemoved()
			if !h.restart {
				require.Less(h.t, time.Since(began), time.Minute, "deletion does not wait for the pull")
			}
			<-left // the runtime has canceled the pull too
		},
	}
}
