//go:build schemas

package e2e

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/yaml"
	strict "sigs.k8s.io/yaml"

	"github.com/ampcors/ampcors/configfile"
)

// A serviceMonitor has the fields that the example uses of the Prometheus Operator's resource, whose Go module would bring all of
// Prometheus. https://prometheus-operator.dev/docs/api-reference/api/#monitoring.coreos.com/v1.ServiceMonitor
type serviceMonitor struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Selector  metav1.LabelSelector `json:"selector"`
		JobLabel  string               `json:"jobLabel"`
		Endpoints []struct {
			Port     string `json:"port"`
			Interval string `json:"interval"`
		} `json:"endpoints"`
	} `json:"spec"`
}

// readManifests reads the documents of a file into values by "version kind". Each must be there once.
func readManifests(t *testing.T, file string, kinds map[string]any) {
	t.Helper()
	data, err := os.ReadFile("../examples/kubernetes/" + file)
	if err != nil {
		t.Fatal(err)
	}
	documents := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for {
		document, err := documents.Read()
		if err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		var kind metav1.TypeMeta
		if err := strict.Unmarshal(document, &kind); err != nil {
			t.Fatal(err)
		}
		name := kind.APIVersion + " " + kind.Kind
		if kinds[name] == nil {
			t.Errorf("%s is not known, or is there twice", name)
			continue
		}
		if err := strict.UnmarshalStrict(document, kinds[name]); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if broken := bytes.Replace(document, []byte("spec:"), []byte("spek:"), 1); !bytes.Equal(broken, document) &&
			strict.UnmarshalStrict(broken, kinds[name]) == nil {
			t.Errorf("%s: a misspelt field is accepted", name)
		}
		delete(kinds, name)
	}
	for name := range kinds {
		t.Errorf("there is no %s", name)
	}
}

// portsOf returns the ports of a container by name.
func portsOf(container corev1.Container) map[string]int32 {
	ports := make(map[string]int32)
	for _, p := range container.Ports {
		ports[p.Name] = p.ContainerPort
	}
	return ports
}

// checkAmpcors checks the container of ampcors: its probes, its flags and its configuration.
func checkAmpcors(t *testing.T, command string, pod corev1.PodSpec, container corev1.Container, config corev1.ConfigMap) {
	t.Helper()
	for _, probe := range []*corev1.Probe{container.StartupProbe, container.LivenessProbe, container.ReadinessProbe} {
		if probe.HTTPGet == nil || probe.HTTPGet.Port.String() != "metrics" ||
			probe.HTTPGet.Path != "/healthz" && probe.HTTPGet.Path != "/readyz" {
			t.Errorf("%+v", probe.HTTPGet)
		}
	}
	if !*container.SecurityContext.ReadOnlyRootFilesystem || container.VolumeMounts[0].SubPath != "" ||
		pod.Volumes[0].ConfigMap.Name != config.Name {
		t.Error("the root can be written, or the list is not followed")
	}
	dir := t.TempDir()
	for name, text := range config.Data {
		if err := os.WriteFile(dir+"/"+name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := (configfile.File{Path: dir + "/ampcors.json"}).Config(); err != nil {
		t.Error(err)
	}
	help, err := exec.Command("go", "run", "github.com/ampcors/ampcors/cmd/ampcors", command, "--help").Output()
	if err != nil || container.Args[0] != command {
		t.Fatalf("%q, %v", container.Args, err)
	}
	for _, arg := range container.Args[1:] {
		if name, _, _ := strings.Cut(arg, "="); !strings.Contains(string(help), " "+name+" ") {
			t.Errorf("%s has no flag %s", command, name)
		}
	}
	// Within the time that the pod has to end, the Service forgets it, and then the server ends what was begun.
	if stop := container.Lifecycle.PreStop.Sleep; stop == nil || *pod.TerminationGracePeriodSeconds < stop.Seconds+10 {
		t.Errorf("%+v, and %v seconds to end", stop, *pod.TerminationGracePeriodSeconds)
	}
}

// checkSelectors checks that each selector has the pods.
func checkSelectors(t *testing.T, pods map[string]string, selectors ...*metav1.LabelSelector) {
	t.Helper()
	for _, s := range selectors {
		selector, err := metav1.LabelSelectorAsSelector(s)
		if err != nil || selector.Empty() || !selector.Matches(labels.Set(pods)) {
			t.Errorf("%v does not select the pods, %v", s, err)
		}
	}
}

// The manifests have only fields that the API knows, and their parts fit together.
func TestKubernetesManifests(t *testing.T) {
	t.Parallel()
	var (
		config     corev1.ConfigMap
		deployment appsv1.Deployment
		service    corev1.Service
		budget     policyv1.PodDisruptionBudget
		network    networkingv1.NetworkPolicy
		monitor    serviceMonitor
	)
	readManifests(t, "ampcors.yaml", map[string]any{"v1 ConfigMap": &config, "apps/v1 Deployment": &deployment, "v1 Service": &service,
		"policy/v1 PodDisruptionBudget": &budget, "networking.k8s.io/v1 NetworkPolicy": &network,
		"monitoring.coreos.com/v1 ServiceMonitor": &monitor})
	pod := deployment.Spec.Template
	container := pod.Spec.Containers[0]
	checkSelectors(t, pod.Labels, deployment.Spec.Selector, budget.Spec.Selector, &network.Spec.PodSelector,
		metav1.SetAsLabelSelector(service.Spec.Selector))
	checkAmpcors(t, "serve-authz", pod.Spec, container, config)
	if selector, err := metav1.LabelSelectorAsSelector(&monitor.Spec.Selector); err != nil || !selector.Matches(labels.Set(service.Labels)) ||
		service.Labels[monitor.Spec.JobLabel] != "ampcors" {
		t.Errorf("the ServiceMonitor does not select the Service, %v", err)
	}
	for _, p := range service.Spec.Ports {
		if portsOf(container)[p.TargetPort.String()] != p.Port {
			t.Errorf("the port %s of the Service leads nowhere", p.Name)
		}
	}
	if !*pod.Spec.SecurityContext.RunAsNonRoot {
		t.Error("the user may be root")
	}
	// ampcors.yaml says how it is made
	if ref := container.Env[0].ValueFrom.SecretKeyRef; !*ref.Optional || container.Env[0].Name != "AMPCORS_DATABASE" {
		t.Errorf("%+v", ref)
	}
}

// Beside a backend, the proxy is what the Service leads to, and nobody gets past it.
func TestKubernetesManifestsOfTheProxy(t *testing.T) {
	t.Parallel()
	var (
		config     corev1.ConfigMap
		deployment appsv1.Deployment
		service    corev1.Service
		network    networkingv1.NetworkPolicy
	)
	readManifests(t, "proxy.yaml", map[string]any{"v1 ConfigMap": &config, "apps/v1 Deployment": &deployment, "v1 Service": &service,
		"networking.k8s.io/v1 NetworkPolicy": &network})
	pod := deployment.Spec.Template
	backend, container := pod.Spec.Containers[0], pod.Spec.Containers[1]
	checkSelectors(t, pod.Labels, deployment.Spec.Selector, &network.Spec.PodSelector, metav1.SetAsLabelSelector(service.Spec.Selector))
	checkAmpcors(t, "serve-proxy", pod.Spec, container, config)
	if !*container.SecurityContext.RunAsNonRoot {
		t.Error("the user may be root")
	}
	ports := portsOf(container)
	if target := service.Spec.Ports[0].TargetPort.String(); target != "proxy" ||
		!slices.Contains(container.Args, fmt.Sprintf("--listen=:%d", ports[target])) {
		t.Errorf("the Service leads to %s, and the proxy has %q", target, container.Args)
	}
	if host, port := backend.Env[0].Value, backend.Env[1].Value; !slices.Contains(container.Args, "--to=http://"+host+":"+port) {
		t.Errorf("the backend is at %s:%s, and the proxy has %q", host, port, container.Args)
	}
	for _, rule := range network.Spec.Ingress {
		for _, p := range rule.Ports {
			if ports[p.Port.String()] == 0 {
				t.Errorf("the policy lets requests to port %v through, which is none of the proxy's", p.Port)
			}
		}
	}
	if stop := backend.Lifecycle.PreStop.Sleep; stop.Seconds < container.Lifecycle.PreStop.Sleep.Seconds+10 {
		t.Errorf("the backend ends after %d seconds, while the proxy passes requests on", stop.Seconds)
	}
}
