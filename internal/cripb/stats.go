// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cripb

import (
	"time"

	v1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/seed81659283/nodeagent/cri"
)

// EncodeContainerStats converts the usage of a container to a CRI message.
func EncodeContainerStats(stats *cri.ContainerStats) *v1.ContainerStats {
	p := &v1.ContainerStats{
		Attributes: &v1.ContainerAttributes{
			Id:          stats.ID,
			Metadata:    &v1.ContainerMetadata{Name: stats.Name, Attempt: stats.Attempt},
			Labels:      stats.Labels,
			Annotations: stats.Annotations,
		},
		Cpu:    encodeCPU(stats.CPU),
		Memory: encodeMemory(stats.Memory),
		Io:     encodeIO(stats.IO),
	}
	if u := stats.Swap; u != nil {
		p.Swap = &v1.SwapUsage{
			Timestamp:          encodeTime(u.Time),
			SwapAvailableBytes: encodeUint64(u.AvailableBytes),
			SwapUsageBytes:     encodeUint64(u.UsageBytes),
		}
	}
	if stats.WritableLayer != nil {
		p.WritableLayer = encodeFilesystem(stats.WritableLayer)
	}
	return p
}

// DecodeContainerStats converts the CRI message msg to the usage of a container.
func DecodeContainerStats(msg *v1.ContainerStats) cri.ContainerStats {
	a := msg.GetAttributes()
	s := cri.ContainerStats{
		ID:          a.GetId(),
		Name:        a.GetMetadata().GetName(),
		Attempt:     a.GetMetadata().GetAttempt(),
		Labels:      a.GetLabels(),
		Annotations: a.GetAnnotations(),
		CPU:         decodeCPU(msg.GetCpu()),
		Memory:      decodeMemory(msg.GetMemory()),
		IO:          decodeIO(msg.GetIo()),
	}
	if u := msg.GetSwap(); u != nil {
		s.Swap = &cri.SwapUsage{
			Time:           decodeTime(u.GetTimestamp()),
			AvailableBytes: decodeUint64(u.GetSwapAvailableBytes()),
			UsageBytes:     decodeUint64(u.GetSwapUsageBytes()),
		}
	}
	if u := msg.GetWritableLayer(); u != nil {
		layer := decodeFilesystem(u)
		s.WritableLayer = &layer
	}
	return s
}

// EncodeSandboxStats converts the usage of a sandbox to a CRI message.
func EncodeSandboxStats(stats *cri.SandboxStats) *v1.PodSandboxStats {
	p := &v1.PodSandboxStats{
		Attributes: &v1.PodSandboxAttributes{
			Id:          stats.ID,
			Metadata:    encodeSandboxMetadata(stats.Pod, stats.Attempt),
			Labels:      stats.Labels,
			Annotations: stats.Annotations,
		},
		Linux: &v1.LinuxPodSandboxStats{
			Cpu:        encodeCPU(stats.CPU),
			Memory:     encodeMemory(stats.Memory),
			Network:    encodeNetwork(stats.Network),
			Io:         encodeIO(stats.IO),
			Containers: mapSlicePtr(stats.Containers, EncodeContainerStats),
		},
	}
	if stats.Processes != nil {
		p.Linux.Process = &v1.ProcessUsage{ProcessCount: encodeUint64(stats.Processes)}
	}
	return p
}

// DecodeSandboxStats converts the CRI message msg to the usage of a sandbox.
func DecodeSandboxStats(msg *v1.PodSandboxStats) cri.SandboxStats {
	a, linux := msg.GetAttributes(), msg.GetLinux()
	return cri.SandboxStats{
		ID:          a.GetId(),
		Pod:         decodeIdentity(a.GetMetadata()),
		Attempt:     a.GetMetadata().GetAttempt(),
		Labels:      a.GetLabels(),
		Annotations: a.GetAnnotations(),
		CPU:         decodeCPU(linux.GetCpu()),
		Memory:      decodeMemory(linux.GetMemory()),
		Network:     decodeNetwork(linux.GetNetwork()),
		IO:          decodeIO(linux.GetIo()),
		Processes:   decodeUint64(linux.GetProcess().GetProcessCount()),
		Containers:  mapSlice(linux.GetContainers(), DecodeContainerStats),
	}
}

func encodeCPU(u *cri.CPUUsage) *v1.CpuUsage {
	if u == nil {
		return nil
	}
	return &v1.CpuUsage{
		Timestamp:            encodeTime(u.Time),
		UsageCoreNanoSeconds: encodeUint64(u.UsageCoreNanoSeconds),
		UsageNanoCores:       encodeUint64(u.UsageNanoCores),
		Psi:                  encodePSI(u.PSI),
	}
}

func decodeCPU(msg *v1.CpuUsage) *cri.CPUUsage {
	if msg == nil {
		return nil
	}
	return &cri.CPUUsage{
		Time:                 decodeTime(msg.GetTimestamp()),
		UsageCoreNanoSeconds: decodeUint64(msg.GetUsageCoreNanoSeconds()),
		UsageNanoCores:       decodeUint64(msg.GetUsageNanoCores()),
		PSI:                  decodePSI(msg.GetPsi()),
	}
}

func encodeMemory(u *cri.MemoryUsage) *v1.MemoryUsage {
	if u == nil {
		return nil
	}
	return &v1.MemoryUsage{
		Timestamp:       encodeTime(u.Time),
		WorkingSetBytes: encodeUint64(u.WorkingSetBytes),
		AvailableBytes:  encodeUint64(u.AvailableBytes),
		UsageBytes:      encodeUint64(u.UsageBytes),
		RssBytes:        encodeUint64(u.RSSBytes),
		PageFaults:      encodeUint64(u.PageFaults),
		MajorPageFaults: encodeUint64(u.MajorPageFaults),
		Psi:             encodePSI(u.PSI),
	}
}

func decodeMemory(msg *v1.MemoryUsage) *cri.MemoryUsage {
	if msg == nil {
		return nil
	}
	return &cri.MemoryUsage{
		Time:            decodeTime(msg.GetTimestamp()),
		WorkingSetBytes: decodeUint64(msg.GetWorkingSetBytes()),
		AvailableBytes:  decodeUint64(msg.GetAvailableBytes()),
		UsageBytes:      decodeUint64(msg.GetUsageBytes()),
		RSSBytes:        decodeUint64(msg.GetRssBytes()),
		PageFaults:      decodeUint64(msg.GetPageFaults()),
		MajorPageFaults: decodeUint64(msg.GetMajorPageFaults()),
		PSI:             decodePSI(msg.GetPsi()),
	}
}

func encodeIO(u *cri.IOUsage) *v1.IoUsage {
	if u == nil {
		return nil
	}
	return &v1.IoUsage{Timestamp: encodeTime(u.Time), Psi: encodePSI(u.PSI)}
}

func decodeIO(msg *v1.IoUsage) *cri.IOUsage {
	if msg == nil {
		return nil
	}
	return &cri.IOUsage{Time: decodeTime(msg.GetTimestamp()), PSI: decodePSI(msg.GetPsi())}
}

func encodePSI(s *cri.PSI) *v1.PsiStats {
	if s == nil {
		return nil
	}
	return &v1.PsiStats{Some: encodePSIData(s.Some), Full: encodePSIData(s.Full)}
}

func decodePSI(msg *v1.PsiStats) *cri.PSI {
	if msg == nil {
		return nil
	}
	return &cri.PSI{Some: decodePSIData(msg.GetSome()), Full: decodePSIData(msg.GetFull())}
}

func encodePSIData(d cri.PSIData) *v1.PsiData {
	return &v1.PsiData{Total: uint64(d.Total.Nanoseconds()), Avg10: d.Avg10, Avg60: d.Avg60, Avg300: d.Avg300}
}

func decodePSIData(msg *v1.PsiData) cri.PSIData {
	return cri.PSIData{
		Total:  time.Duration(msg.GetTotal()) * time.Nanosecond,
		Avg10:  msg.GetAvg10(),
		Avg60:  msg.GetAvg60(),
		Avg300: msg.GetAvg300(),
	}
}

func encodeNetwork(u *cri.NetworkUsage) *v1.NetworkUsage {
	if u == nil {
		return nil
	}
	p := &v1.NetworkUsage{Timestamp: encodeTime(u.Time), Interfaces: mapSlicePtr(u.Interfaces, encodeInterface)}
	if u.Default != nil {
		p.DefaultInterface = encodeInterface(u.Default)
	}
	return p
}

func decodeNetwork(msg *v1.NetworkUsage) *cri.NetworkUsage {
	if msg == nil {
		return nil
	}
	u := &cri.NetworkUsage{Time: decodeTime(msg.GetTimestamp()), Interfaces: mapSlice(msg.GetInterfaces(), decodeInterface)}
	if msg.GetDefaultInterface() != nil {
		i := decodeInterface(msg.GetDefaultInterface())
		u.Default = &i
	}
	return u
}

func encodeInterface(u *cri.InterfaceUsage) *v1.NetworkInterfaceUsage {
	return &v1.NetworkInterfaceUsage{
		Name:     u.Name,
		RxBytes:  encodeUint64(u.RxBytes),
		RxErrors: encodeUint64(u.RxErrors),
		TxBytes:  encodeUint64(u.TxBytes),
		TxErrors: encodeUint64(u.TxErrors),
	}
}

func decodeInterface(msg *v1.NetworkInterfaceUsage) cri.InterfaceUsage {
	return cri.InterfaceUsage{
		Name:     msg.GetName(),
		RxBytes:  decodeUint64(msg.GetRxBytes()),
		RxErrors: decodeUint64(msg.GetRxErrors()),
		TxBytes:  decodeUint64(msg.GetTxBytes()),
		TxErrors: decodeUint64(msg.GetTxErrors()),
	}
}
