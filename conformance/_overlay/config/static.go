// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	api "k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/utils/dump"
)

// ConformanceManifest is a manifest of static pods, in a file or at a URL.
type ConformanceManifest struct {
	Data     []byte
	Location string // path or URL
	IsFile   bool
	NodeName types.NodeName
}

func (m ConformanceManifest) applyDefaults(logger klog.Logger, pod *api.Pod) error {
	return applyDefaults(logger, pod, m.Location, m.IsFile, m.NodeName)
}

// Read returns the valid pods of the manifest as the file source or the URL source does.
func (m ConformanceManifest) Read() (pods []*v1.Pod, err error) {
	parsed, pod, err := tryDecodeSinglePod(klog.Background(), m.Data, m.applyDefaults)
	if parsed && err == nil {
		return []*v1.Pod{pod}, nil
	}
	if parsed || m.IsFile {
		return nil, err
	}
	_, list, err := tryDecodePodList(klog.Background(), m.Data, m.applyDefaults)
	for i := range list.Items {
		pods = append(pods, &list.Items[i])
	}
	return pods, err
}

// Decode returns the pods of the manifest in the internal type, with their metadata. It omits the validation, which takes most
// of the time of Read.
func (m ConformanceManifest) Decode() (pods []*api.Pod, err error) {
	err = m.decodePods(func(pod *api.Pod) error {
		pods = append(pods, pod)
		return m.applyDefaults(klog.Background(), pod)
	})
	return pods, err
}

// Dumps returns the text of each pod of the manifest that the kubelet hashes.
func (m ConformanceManifest) Dumps() (texts [][]byte, err error) {
	err = m.decodePods(func(pod *api.Pod) error {
		texts = append(texts, []byte(dump.ForHash(pod)))
		return nil
	})
	return texts, err
}

func (m ConformanceManifest) decodePods(each func(*api.Pod) error) error {
	data, err := utilyaml.ToJSON(bytes.Clone(m.Data))
	if err != nil {
		return err
	}
	object, err := runtime.Decode(legacyscheme.Codecs.UniversalDecoder(), data)
	if err != nil {
		return err
	}
	switch object := object.(type) {
	case *api.Pod:
		return each(object)
	case *api.PodList:
		for i := range object.Items {
			if err := each(&object.Items[i]); err != nil {
				return err
			}
		}
		return nil
	}
	return fmt.Errorf("%T is no pod and no list of pods", object)
}

// ConformancePathPods returns the pods that the file source reads at first in a file or directory. The source is never stopped.
func ConformancePathPods(path string, nodeName types.NodeName) []*v1.Pod {
	updates := make(chan sourceUpdate, 8)
	NewSourceFile(klog.Background(), path, nodeName, time.Hour, updates)
	return (<-updates).Pods
}

// ConformanceURLPods returns the pods that the URL source reads at first. The source is never stopped.
func ConformanceURLPods(url string, nodeName types.NodeName) []*v1.Pod {
	updates := make(chan sourceUpdate, 8)
	NewSourceURL(klog.Background(), url, nil, nodeName, time.Hour, updates)
	return (<-updates).Pods
}
