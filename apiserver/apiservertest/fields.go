// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiservertest

import (
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	resourcev1 "k8s.io/api/resource/v1"
)

// selectableField returns the value of a field that field selectors support, such as spec.nodeName.
func selectableField(obj Object, name string) (value string, ok bool) {
	switch name {
	case "metadata.name":
		return obj.GetName(), true
	case "metadata.namespace":
		return obj.GetNamespace(), true
	}
	switch obj := obj.(type) {
	case *corev1.Pod:
		return podField(obj, name)
	case *corev1.Event:
		return eventField(obj, name)
	case *eventsv1.Event:
		return newEventField(obj, name)
	case *corev1.ReplicationController:
		return strconv.Itoa(int(obj.Status.Replicas)), name == "status.replicas"
	case *appsv1.ReplicaSet:
		return strconv.Itoa(int(obj.Status.Replicas)), name == "status.replicas"
	case *batchv1.Job:
		return strconv.Itoa(int(obj.Status.Succeeded)), name == "status.successful"
	case *resourcev1.ResourceSlice:
		return sliceField(obj, name)
	case *corev1.Node:
		return strconv.FormatBool(obj.Spec.Unschedulable), name == "spec.unschedulable"
	case *corev1.Secret:
		return string(obj.Type), name == "type"
	case *corev1.Service:
		if name == "spec.type" {
			return string(obj.Spec.Type), true
		}
		return obj.Spec.ClusterIP, name == "spec.clusterIP"
	case *corev1.Namespace:
		return string(obj.Status.Phase), name == "status.phase"
	case *certificatesv1.CertificateSigningRequest:
		return obj.Spec.SignerName, name == "spec.signerName"
	case *certificatesv1.ClusterTrustBundle:
		return obj.Spec.SignerName, name == "spec.signerName"
	case *certificatesv1.PodCertificateRequest:
		if name == "spec.nodeName" {
			return string(obj.Spec.NodeName), true
		}
		return obj.Spec.SignerName, name == "spec.signerName"
	case *certificatesv1beta1.ClusterTrustBundle:
		return obj.Spec.SignerName, name == "spec.signerName"
	case *certificatesv1beta1.PodCertificateRequest:
		if name == "spec.nodeName" {
			return string(obj.Spec.NodeName), true
		}
		return obj.Spec.SignerName, name == "spec.signerName"
	}
	return "", false
}

func podField(pod *corev1.Pod, name string) (string, bool) {
	switch name {
	case "spec.nodeName", "spec.host":
		return pod.Spec.NodeName, true
	case "spec.restartPolicy":
		return string(pod.Spec.RestartPolicy), true
	case "spec.schedulerName":
		return pod.Spec.SchedulerName, true
	case "spec.serviceAccountName":
		return pod.Spec.ServiceAccountName, true
	case "spec.hostNetwork":
		return strconv.FormatBool(pod.Spec.HostNetwork), true
	case "status.phase":
		return string(pod.Status.Phase), true
	case "status.podIP":
		return pod.Status.PodIP, true
	case "status.nominatedNodeName":
		return pod.Status.NominatedNodeName, true
	}
	return "", false
}

func eventField(event *corev1.Event, name string) (string, bool) {
	about := event.InvolvedObject
	switch name {
	case "involvedObject.kind":
		return about.Kind, true
	case "involvedObject.namespace":
		return about.Namespace, true
	case "involvedObject.name":
		return about.Name, true
	case "involvedObject.uid":
		return string(about.UID), true
	case "involvedObject.resourceVersion":
		return about.ResourceVersion, true
	case "involvedObject.apiVersion":
		return about.APIVersion, true
	case "involvedObject.fieldPath":
		return about.FieldPath, true
	case "reason":
		return event.Reason, true
	case "reportingComponent":
		return event.ReportingController, true
	case "source":
		return event.Source.Component, true
	case "type":
		return event.Type, true
	}
	return "", false
}

// newEventField returns the value of the named field of an events.k8s.io Event, for field selectors. It returns false if
// selectors cannot use the field. Source: pkg/apis/events/v1/conversion.go.
func newEventField(event *eventsv1.Event, name string) (string, bool) {
	core := coreEvent(event).(*corev1.Event)
	if about, ok := strings.CutPrefix(name, "regarding."); ok {
		return eventField(core, "involvedObject."+about)
	}
	switch name {
	case "reportingController":
		return eventField(core, "reportingComponent")
	case "reason", "type":
		return eventField(core, name)
	}
	return "", false
}

func sliceField(slice *resourcev1.ResourceSlice, name string) (string, bool) {
	switch {
	case name == "spec.driver":
		return slice.Spec.Driver, true
	case name == "spec.nodeName" && slice.Spec.NodeName != nil:
		return *slice.Spec.NodeName, true
	}
	return "", name == "spec.nodeName"
}
