cgm_test(algo conformance cgm_executor cgm_backend_cpu cgm_kernels)
cgm_test(algo copy_in cgm_executor cgm_backend_cpu cgm_kernels)
cgm_test(algo chain cgm_executor cgm_backend_cpu cgm_kernels)
cgm_test(algo timeline cgm_executor cgm_backend_cpu cgm_kernels)
