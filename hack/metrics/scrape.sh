#!/usr/bin/env bash
# SPDX-FileCopyrightText: The nodeagent Authors
# SPDX-License-Identifier: Apache-2.0

# Scrapes the metrics pages of a kubelet without an API server into a directory: KUBELET=path hack/metrics/scrape.sh DIR
# The lab has to be up and empty, because a kubelet stops unknown pods: `make metrics` starts one. The kubelet runs pods
# with probes, hooks, limits and volumes for a minute. Some of the pods fail, so that most of its metrics have a series.
# VALUES=path of the program values also compares the numbers with ours. The kubelet gets its own mount namespace, and a
# parent cgroup that is removed at the end.
set -euo pipefail
cd "$(dirname "$0")/../.."
pages=$(mkdir -p "$1" && cd "$1" && pwd)
kubelet=${KUBELET:-.lab/bin/kubelet}

if [ "${UNSHARED:-}" != yes ]; then UNSHARED=yes exec unshare --mount --propagation=slave "$0" "$pages"; fi

# User Mode Linux reports no clock speed, and a kubelet does not start without one.
if ! grep -q '^cpu MHz' /proc/cpuinfo; then
	cpuinfo=$(mktemp)
	sed 's/^\(bogomips.*\)/cpu MHz\t\t: 2000.000\n\1/' /proc/cpuinfo >"$cpuinfo"
	mount --bind "$cpuinfo" /proc/cpuinfo
	rm "$cpuinfo"
fi

endpoint=$(.lab/bin/lab status | awk '$1 == "endpoint" { print $2 }')
registry=$(.lab/bin/lab status | awk '$1 == "registry" { print $2 }')
[ -n "$endpoint" ] || { echo "scrape.sh: the lab is not up: make lab" >&2; exit 1; }

root=nodeagent-metrics-$$
trees=()
for tree in /sys/fs/cgroup /sys/fs/cgroup/*; do
	if [ -e "$tree/cgroup.procs" ] && [ ! -L "$tree" ]; then trees+=("$tree"); fi
	if [ -e /sys/fs/cgroup/cgroup.procs ]; then break; fi # cgroup v2 is one tree
done
work=$(mktemp -d)
pid=
cleanup() {
	if [ -n "$pid" ]; then kill "$pid" || true; wait "$pid" || true; fi
	while umount -l "$work/root" 2>/dev/null; do :; done
	rm -rf --one-file-system "$work"
	.lab/bin/ctr -a "${endpoint#unix://}" -n k8s.io tasks ls -q 2>/dev/null |
		xargs -r -n1 .lab/bin/ctr -a "${endpoint#unix://}" -n k8s.io tasks kill -s KILL 2>/dev/null || true
	sleep 2
	for tree in "${trees[@]}"; do find "$tree/$root" -depth -type d -exec rmdir {} + || true; done
}
trap cleanup EXIT
for tree in "${trees[@]}"; do
	mkdir "$tree/$root"
	# A new cpuset of cgroup v1 is empty and can contain no process.
	for file in cpuset.cpus cpuset.mems; do
		if [ -e "$tree/$root/$file" ] && [ ! -e "$tree/cgroup.controllers" ]; then cat "$tree/$file" >"$tree/$root/$file"; fi
	done
done
if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
	sed 's/\([a-z]\+\)/+\1/g' /sys/fs/cgroup/cgroup.controllers >/sys/fs/cgroup/cgroup.subtree_control || true
fi
# A kubelet writes to this directory with any configuration.
mkdir -p /var/lib/kubelet "$work/root" "$work/manifests" "$work/host"
mount -t tmpfs tmpfs /var/lib/kubelet
# cAdvisor finds containers by a socket path that is not configurable in a kubelet.
mkdir -p /run/containerd
mount -t tmpfs tmpfs /run/containerd
ln -s "${endpoint#unix://}" /run/containerd/containerd.sock

cat >"$work/kubelet.yaml" <<YAML
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
staticPodPath: $work/manifests
containerRuntimeEndpoint: $endpoint
podLogsDir: $work/logs
volumePluginDir: $work/plugins
registerNode: false
syncFrequency: 10s
address: 127.0.0.1
port: 20250
healthzPort: 0
readOnlyPort: 20255
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
cgroupDriver: cgroupfs
cgroupRoot: /$root
enforceNodeAllocatable: [pods]
failCgroupV1: false
failSwapOn: false
makeIPTablesUtilChains: false
imageGCHighThresholdPercent: 100
evictionHard: {memory.available: 1Mi, nodefs.available: "1%", imagefs.available: "1%", nodefs.inodesFree: "0%"}
YAML
for pod in hack/metrics/manifests/*.yaml; do
	sed -e "s#REGISTRY#$registry#" -e "s#HOST#$work/host#" "$pod" >"$work/manifests/$(basename "$pod")"
done

"$kubelet" --config="$work/kubelet.yaml" --root-dir="$work/root" --cert-dir="$work/pki" --hostname-override=node --v=2 \
	>"$pages/kubelet.log" 2>&1 &
pid=$!
url=http://127.0.0.1:20255
until curl -sf "$url/pods" >/dev/null; do
	kill -0 "$pid" || { tail -n 5 "$pages/kubelet.log" >&2; exit 1; }
	sleep 1
done
sleep "${SETTLE:-60}"
# Values change when containers start or exit, so they are compared while none does.
if [ -n "${VALUES:-}" ]; then
	failed=
	"$VALUES" -kubelet "$url" -endpoint "$endpoint" -cgroup-root "/$root" -root "$work/root" -logs "$work/logs" -for "${COMPARE:-40s}" \
		>"$pages/values.txt" || failed=yes
	if [ -n "$failed" ]; then exit 1; fi
fi
rm "$work/manifests/leaves.yaml"
# The server counts its requests: request several paths, and exec and logs, which have their own metrics.
for path in pods stats/summary nothing containerLogs/default/web-node/web metrics; do
	curl -sk -o /dev/null "https://127.0.0.1:20250/$path"
done
curl -sk -o /dev/null -X POST "https://127.0.0.1:20250/run/default/web-node/web?cmd=true"
sleep 20
for page in metrics metrics/probes metrics/resource metrics/cadvisor metrics/slis; do
	curl -sfk -o "$pages/$(basename "$page").txt" "https://127.0.0.1:20250/$page"
done
curl -sfk -o "$pages/pods.json" "https://127.0.0.1:20250/pods"
wc -l "$pages"/*.txt
